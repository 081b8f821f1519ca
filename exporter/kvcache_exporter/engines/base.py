"""The types of an engine table: for each of our metrics, the families it may come from, how to read them."""

from dataclasses import dataclass
from typing import Literal

from kvcache_exporter.catalogue import Kind, Metric

Part = Literal["", "sum", "count"]
Where = tuple[tuple[str, tuple[str, ...]], ...]
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
_SUFFIXES: dict[Kind, tuple[str, ...]] = {"counter": ("_total", ""), "gauge": ("",), "info": ("",)}


@dataclass(frozen=True, slots=True)
class Source:
    """One family that a value may come from; names carry neither the engine's prefix nor `_total`."""

    family: str
    where: Where = ()
    """Accepted values by label; "" accepts a series without the label."""
    part: Part = ""
    """Read a histogram's `_sum` or `_count` as a counter."""
    minus: "Source | None" = None
    """Subtracted, for each model and rank; without it on the page there is no value."""
    plus: "Source | None" = None
    """Added, for each model and rank."""
    minus_optional: bool = False
    """Whether a page may lack the family to subtract."""
    deprecated: bool = False
    """Whether newer versions renamed it: it is read as the last choice, and counted."""
    bare: bool = False
    """Whether the name on the page lacks the engine's prefix, as that of its web server does."""
    unranked: bool = False
    """Whether the first of the engine's rank labels is not the rank that counted."""


def source_names(source: Source, kind: Kind) -> tuple[str, ...]:
    """Sample names that a source can have, best first."""
    if source.part:
        return (f"{source.family}_{source.part}",)
    if kind == "histogram":
        return tuple(source.family + part for part in HISTOGRAM_PARTS)
    return tuple(source.family + suffix for suffix in _SUFFIXES[kind])


@dataclass(frozen=True, slots=True)
class Rule:
    """Where one of our metrics comes from: the first of `sources` on the page, never their sum."""

    metric: Metric
    sources: tuple[Source, ...]
    tier: str = ""
    combine: Literal["sum", "max"] = "sum"
    """How to merge series that differ only in labels we drop."""
    needed: bool = False
    """Whether a page with none of the sources is missing a family."""


@dataclass(frozen=True, slots=True)
class Basis:
    """A pair of counters whose increases give the token-weighted hit rate; the first complete pair wins."""

    name: Literal["prompt", "computed", "lookup"]
    cached: tuple[Source, ...]
    """Summed; all but the first may be missing."""
    prompt: Source
    absent_unless: tuple[Source, ...] = ()
    """If given, an absent cached counter means 0, unless one of these grows."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that an engine states: the product of labels of an info family, or the value of a gauge."""

    name: Literal[
        "block_size", "hash_algorithm", "cache_dtype", "prefix_caching", "device_tokens", "host_tokens"
    ]
    family: str
    labels: tuple[str, ...] = ()
    """If empty, the fact is the value of the family itself."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine, or a cache or router beside it, in all its versions."""

    name: str
    prefixes: tuple[str, ...]
    rules: tuple[Rule, ...]
    bases: tuple[Basis, ...] = ()
    facts: tuple[Fact, ...] = ()
    """For each name, the first on the page wins."""
    serves: bool = True
    """Whether it has a prefix cache of its own, so that it can be cold and compared with other replicas."""
    model_labels: tuple[str, ...] = ("model_name",)
    """Labels that name the model, best first."""
    witnesses: tuple[Basis, ...] = ()
    """Pairs that count the same as `bases` in another way: if one grows, the others must grow too."""
    cache_resets: tuple[Source, ...] = ()
    """Counters of calls that emptied the prefix cache."""
    prefill_tokens: tuple[Source, ...] = ()
    """Prompt tokens that were computed in the time that ENGINE_PREFILL_SECONDS counts."""
    rank_labels: tuple[str, ...] = ()
    """Labels that distinguish the data-parallel ranks (or merged workers) on one page."""
    merged_label: str = ""
    """The rank label that holds the address of each engine whose page was merged into this one."""
    sole_rank_is_none: bool = False
    """Whether a rank means nothing if it is the only one: some families have one without data parallelism."""
    twin_labels: tuple[str, ...] = ()
    """Labels of ranks that share the same work, of which only the lowest is read."""
    foreign_labels: tuple[str, ...] = ()
    """Labels that mark copies of the engine's series, re-exported by a router."""
    own_label: str = ""
    """If given, only series with this label are its own: it shares its prefix with an engine."""
    process_families: tuple[str, ...] = ()
    """Gauges with a label `pid` in multi-process mode: a second pid means a restart."""
    alive_families: tuple[str, ...] = ()
    """If given, needed families count as missing only on a page that has one of these."""
    default_block_size: int = 1
    metrics_path: str = "/metrics"
    """The path of the metrics page on the engine's own web server."""
    version_path: str = ""
    """The path of a JSON object with the key `version` that is cheap to get; "" if there is none."""

    def families(self) -> frozenset[str]:
        """All families that the table names, without prefix."""
        facts = {fact.family for fact in self.facts}
        return frozenset(s.family for s in self.sources()) | facts | set(self.process_families)

    def sources(self) -> tuple[Source, ...]:
        listed = [source for rule in self.rules for source in rule.sources]
        listed += [
            source
            for basis in (*self.bases, *self.witnesses)
            for source in (*basis.cached, basis.prompt, *basis.absent_unless)
        ]
        listed += (*self.prefill_tokens, *self.cache_resets)
        parts = [part for source in listed for part in (source.minus, source.plus) if part]
        return (*listed, *parts)
