"""Building blocks of the rules' PromQL; every series name comes from the catalogue.

Expressions are templates: `$selector` stands for the user's own matchers, `$keep` for labels that every rule
keeps beside its own (cluster), and `$<parameter>` for a value of the rule. `fill` substitutes them.
"""

import re
from collections.abc import Mapping
from string import Template

from kvcache_exporter.catalogue import RUNNING_REQUESTS, Metric

TARGET_MODEL = ("target", "namespace", "model_name")
MODEL = ("namespace", "model_name")
SOURCE_MODEL = ("source", "provider", "model_name")
LOG_MODEL = ("provider", "model_name")
_TORN = 0.05


def series(metric: Metric, *matchers: str, part: str = "") -> str:
    """A selector of the metric, or of the `bucket`, `count` or `sum` of a histogram."""
    name = f"{metric.name}_{part}" if part else metric.name
    return f"{name}{{{', '.join((*matchers, '$selector'))}}}"


def labels(level: tuple[str, ...], *more: str) -> str:
    """The label list of `by` and `on`."""
    return f"($keep, {', '.join((*level, *more))})"


def total(level: tuple[str, ...], expression: str, *more: str, operator: str = "sum") -> str:
    return f"{operator} by {labels(level, *more)} ({expression})"


def ratio(numerator: str, denominator: str) -> str:
    """No sample where the denominator is 0."""
    return f"{numerator} / ({denominator} > 0)"


def share(part: str, whole: str) -> str:
    """A ratio within 0..1; no sample where the part clearly exceeds the whole.

    A rule may see one of the series a scrape ahead of the other, so that rates of few requests differ by some
    percent: without a tolerance the series of a replica with only hits would have gaps.
    """
    return f"clamp({ratio(part, whole)} <= {1 + _TORN}, 0, 1)"


def rate_since_birth(level: tuple[str, ...], metric: Metric, window_seconds: int, *more: str) -> str:
    """A rate that includes the first value of a counter that the engine creates only on first use.

    SGLang's retractions appear on the page with their first burst, which `rate` alone takes for the baseline.
    A counter is new if the engine's page was scraped a window ago and did not have it yet.
    """
    window = f"{window_seconds}s"
    known = total(level, f"rate({series(metric)}[{window}])", *more)
    first = f"(min_over_time({series(metric)}[{window}]) unless {series(metric)} offset {window})"
    read = f"{series(RUNNING_REQUESTS)} offset {window}"
    newborn = total(level, f"{first} and on ($keep, target) {read}", *more)
    return f"({known}) + ({newborn} / {window_seconds} or 0 * {known})"


def fill(template: str, values: Mapping[str, str]) -> str:
    """The expression with its values; the remains of an empty `$selector` or `$keep` are removed."""
    text = Template(template).substitute(values)
    text = re.sub(r"(?<=[{(]), |, (?=[})])", "", text)
    return text.replace("{}", "")


def looked_up(query: str, by: tuple[str, ...], shown: str = "printf `%.3g`") -> str:
    """A template that shows the first value of a query; `%s` in it stands for the label matchers."""
    name, _, rest = query.partition("%s")
    own, rest = (rest[1:].split("}", 1)[0] + ", ", rest.split("}", 1)[1]) if rest[:1] == "{" else ("", rest)
    matchers = ", ".join(f"{label}=%q" for label in by)
    values = " ".join(f"$labels.{label}" for label in by)
    call = f"printf `{name}{{{own}{matchers}}}{rest}` {values} | query"
    return f"{{{{ with {call} }}}}{{{{ . | first | value | {shown} }}}}{{{{ else }}}}unknown{{{{ end }}}}"
