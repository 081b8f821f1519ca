"""Pieces of PromQL over raw engine pages: selectors, and the labels that the exporter's series carry.

All expressions work in Prometheus 2.42, Prometheus 3 and VictoriaMetrics. A process is what one job scrapes
at one instance; series are only summed within a process.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kvcache_exporter.catalogue import Kind
from kvcache_exporter.engines.base import Engine, Source, source_names

SEEN = "process:kvcache_direct_seen:timestamp"
"""When a process last returned a page of the `engine`, in Unix seconds; absent once it stops."""
PAGE = "process:kvcache_direct_page:info"
"""1 by process and `engine`: `sole_model` is the page's only model, `ranks` is "many" if it has several."""

_NO_JOB = 'job=""'


class DirectRule(NamedTuple):
    """A recording rule over raw series, and the labels that it adds."""

    record: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """The label names and matchers of the user's Prometheus."""

    target_labels: tuple[str, ...] = ("instance",)
    """Labels that together name a target, joined with slashes."""
    keep: tuple[str, ...] = ("cluster",)
    """Labels that every series keeps."""
    selector: str = ""
    """Additional matchers for raw engine series."""

    @property
    def target(self) -> tuple[str, ...]:
        return (*self.keep, "target")

    @property
    def process(self) -> tuple[str, ...]:
        return (*self.keep, "job", "instance")

    def selected(self, name: str) -> str:
        """A selector for a series that belongs to no engine."""
        return f"{name}{{{self.selector}}}" if self.selector else name

    def named(self, expression: str) -> str:
        """The expression with the label `target`."""
        return label_join(expression, "target", "/", self.target_labels)


def made(metric_name: str, *matchers: str) -> str:
    """A selector for what a direct rule recorded; the same series from an exporter would have a job."""
    return f"{metric_name}{{{', '.join((_NO_JOB, *matchers))}}}"


def by(operator: str, labels: tuple[str, ...], expression: str) -> str:
    return f"{operator} by ({', '.join(dict.fromkeys(labels))}) ({expression})"


def on(labels: tuple[str, ...]) -> str:
    return f"on ({', '.join(labels)})"


def label_join(expression: str, label: str, separator: str, sources: tuple[str, ...]) -> str:
    quoted = ", ".join(map(_quoted, sources))
    return f'label_join({expression}, "{label}", "{separator}", {quoted})'


def label_replace(expression: str, label: str, value: str, source: str = "", pattern: str = "") -> str:
    return f'label_replace({expression}, "{label}", "{value}", "{source}", "{pattern}")'


def with_first(expression: str, label: str, sources: tuple[str, ...]) -> str:
    """Sets the label to the first of these labels that is not empty."""
    if sources == (label,):
        return expression
    if not sources[1:]:
        return label_join(expression, label, ";", sources)
    # VictoriaMetrics 1.79 mixes values up where a label is joined into itself.
    joined = label_join(expression, "models", ";", sources)
    return label_replace(joined, label, "$1", "models", ";*([^;]*).*")


def first_of(*expressions: str, match: str = "") -> str:
    """`A or B`: takes each label set from the first expression that has it."""
    return (f"\nor {match} " if match else "\nor ").join(expressions)


class Names(NamedTuple):
    """Sample names on pages: every prefix combined with every plain name."""

    prefixes: tuple[str, ...]
    plain: tuple[str, ...]

    @property
    def several(self) -> bool:
        return len(self.prefixes) * len(self.plain) > 1


def selector(engine: Engine, names: Names, source: Source, scope: Scope, *more: str) -> str:
    """A selector for the engine's own series of these names that meet the source's conditions."""
    own = [f'{label}=""' for label in engine.foreign_labels]
    own += [f'{engine.own_label}!=""'] if engine.own_label else []
    matchers = [*(_accepts(label, values) for label, values in source.where), *own, *more, scope.selector]
    chosen = ", ".join(filter(None, matchers))
    if names.several:
        pattern = "".join(f"({'|'.join(part)})" if part[1:] else part[0] for part in names)
        return f"{{{', '.join(filter(None, (f'__name__=~{_quoted(pattern)}', chosen)))}}}"
    name = names.prefixes[0] + names.plain[0]
    return f"{name}{{{chosen}}}" if chosen else name


def sample_names(engine: Engine, source: Source, kind: Kind, part: str = "") -> Names:
    """The sample names of a source; `part` selects a part of a histogram."""
    plain = (source.family + part,) if part else source_names(source, kind)
    return Names(("",) if source.bare else engine.prefixes, plain)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _accepts(label: str, values: tuple[str, ...]) -> str:
    return f'{label}="{values[0]}"' if len(values) == 1 else f'{label}=~"{"|".join(values)}"'
