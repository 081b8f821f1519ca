"""What an engine table says: for each of our metrics, the families it may come from and how to read them."""

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
    """Accepted values by label; "" accepts series without the label."""
    part: Part = ""
    """Reads a histogram's `_sum` or `_count` as a counter."""
    minus: "Source | None" = None
    """Taken off, series by series of the same model and rank; without it there is no value."""
    plus: "Source | None" = None
    """Added, series by series of the same model and rank."""
    minus_optional: bool = False
    """Whether a page may lack the family to take off."""
    deprecated: bool = False
    """Renamed in newer versions: read as the last choice and counted."""
    bare: bool = False
    """The name stands on the page without the engine's prefix: its web server counts it."""
    unranked: bool = False
    """The first of the engine's rank labels does not say which rank counted."""


def source_names(source: Source, kind: Kind) -> tuple[str, ...]:
    """Sample names that a source can have, best first."""
    if source.part:
        return (f"{source.family}_{source.part}",)
    if kind == "histogram":
        return tuple(source.family + part for part in HISTOGRAM_PARTS)
    return tuple(source.family + suffix for suffix in _SUFFIXES[kind])


@dataclass(frozen=True, slots=True)
class Rule:
    """Where one of our metrics comes from: of `sources`, the first that a page has wins; never a sum."""

    metric: Metric
    sources: tuple[Source, ...]
    tier: str = ""
    combine: Literal["sum", "max"] = "sum"
    """How series that differ only in labels we do not keep become one."""
    needed: bool = False
    """Whether a page without any of the sources counts as missing a family."""


@dataclass(frozen=True, slots=True)
class Basis:
    """A pair of counters whose increases give the token-weighted hit rate; the first complete one wins."""

    name: Literal["prompt", "computed", "lookup"]
    cached: tuple[Source, ...]
    """Summed; all but the first may be missing."""
    prompt: Source
    absent_unless: tuple[Source, ...] = ()
    """If given, cached tokens that are not on the page are none yet, unless one of these grows."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something fixed that an engine says of itself: the product of labels of an info family, or a gauge."""

    name: Literal[
        "block_size", "hash_algorithm", "cache_dtype", "prefix_caching", "device_tokens", "host_tokens"
    ]
    family: str
    labels: tuple[str, ...] = ()
    """Empty: the value of the family itself."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine, or a cache or router beside it; versions are told by the families on the page."""

    name: str
    prefixes: tuple[str, ...]
    rules: tuple[Rule, ...]
    bases: tuple[Basis, ...] = ()
    facts: tuple[Fact, ...] = ()
    """For each name the first that a page has wins."""
    serves: bool = True
    """Whether it has a prefix cache of its own that can be cold, and by which replicas can be measured."""
    model_labels: tuple[str, ...] = ("model_name",)
    """Labels that name the model, best first."""
    witnesses: tuple[Basis, ...] = ()
    """More pairs that count the same as `bases` by other ways: where one moves, none may stand still."""
    cache_resets: tuple[Source, ...] = ()
    """Calls that emptied the prefix cache."""
    prefill_tokens: tuple[Source, ...] = ()
    """Prompt tokens computed in the time that ENGINE_PREFILL_SECONDS counts."""
    rank_labels: tuple[str, ...] = ()
    """Labels that tell the data-parallel ranks (or merged workers) of one page apart."""
    merged_label: str = ""
    """The rank label that holds the address of each engine whose page was merged into this one."""
    sole_rank_is_none: bool = False
    """Some families of a page without data parallelism carry a rank all the same: then it means nothing."""
    twin_labels: tuple[str, ...] = ()
    """Labels of ranks that do the same work together: only the lowest is read."""
    foreign_labels: tuple[str, ...] = ()
    """Series with one of these are copies that a router re-exports under the engine's names."""
    own_label: str = ""
    """If given, only series with this label are its own: it shares its prefix with an engine."""
    process_families: tuple[str, ...] = ()
    """Gauges that multi-process mode marks with the process's `pid`: a second one there is a restart."""
    alive_families: tuple[str, ...] = ()
    """If given, needed families count as missing only on pages that have one of these."""
    default_block_size: int = 1

    def families(self) -> frozenset[str]:
        """All families the table names, without prefix."""
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
