"""Compiles an engine table for a page's layout, once; pages of that layout then only need sums."""

from collections import defaultdict
from typing import NamedTuple
from weakref import WeakKeyDictionary

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.engines.base import Engine, Rule, Source
from kvcache_exporter.model import RawSeries
from kvcache_exporter.scrape.pairs import BasisTerms, bases_of, claims_of, first_present, merged
from kvcache_exporter.scrape.parse import Layout
from kvcache_exporter.scrape.select import PROCESS_START, Key, Selection
from kvcache_exporter.scrape.watched import Watched
from kvcache_exporter.windows import Terms

INF = float("inf")
_CAPACITY_FACTS = (("device", "device_tokens"), ("host", "host_tokens"))


class Scalar(NamedTuple):
    """A counter or gauge of the plan, computed from `terms`."""

    metric: Metric
    key: Key
    tier: str
    terms: Terms
    combine: str


class Histogram(NamedTuple):
    """A histogram of the plan: cumulative counts by edge, +Inf last, and the sum."""

    metric: Metric
    key: Key
    edges: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    sum: tuple[int, ...]


class Plan:
    """How to turn a page of this layout into samples."""

    def __init__(self, engine: Engine, series: tuple[RawSeries, ...]) -> None:
        self.engine = engine
        select = Selection(engine, series)
        self.scalars: list[Scalar] = []
        self.histograms: list[Histogram] = []
        missing: set[str] = set()
        for rule in engine.rules:
            if not self._apply(rule, select) and rule.needed:
                missing.add(rule.sources[0].family)
        alive = not engine.alive_families or any(map(select.has_family, engine.alive_families))
        self.missing = sorted(missing) if alive else []
        self.deprecated = sorted(
            {s.family for s in engine.sources() if s.deprecated and select.has_family(s.family)}
        )
        self.facts, self.fact_values = _facts(engine, select)
        self.keys = sorted({s.key for s in self.scalars} | {h.key for h in self.histograms})
        self.capacities = [
            (key, tier, fact)
            for key in self.keys
            for tier, fact in _CAPACITY_FACTS
            if self._has_fact(fact, key)
        ]
        self.pids = select.pids()
        self.merged = select.merged()
        self.start = next((i for i, item in enumerate(series) if item.name == PROCESS_START), None)
        self.thresholds: dict[Key, float] = {}
        self.watched = self._watch(select)
        self.claims = claims_of(engine, select)
        self.cache_resets = merged(engine.cache_resets, select)
        self.watched_indices = sorted(_indices_to_watch(engine, select, self))

    def _apply(self, rule: Rule, select: Selection) -> bool:
        if rule.metric.kind == "histogram":
            made = [histogram for s in rule.sources for histogram in histograms(rule.metric, s, select)]
            self.histograms += made
            return bool(made)
        terms = first_present(rule.sources, rule.metric, select)
        self.scalars += [Scalar(rule.metric, key, rule.tier, t, rule.combine) for key, t in terms.items()]
        return bool(terms)

    @property
    def basis(self) -> str:
        """The basis of the hit rate; "" if the page has no pair of counters for one."""
        return next((item.basis for item in self.watched.values() if item.basis), "")

    def _has_fact(self, name: str, key: Key) -> bool:
        return (key, name) in self.facts or (key, name) in self.fact_values

    def fact(self, name: str, key: Key, values: list[float]) -> str | float | None:
        """A fact about the engine, for one key, else for the whole target."""
        for where in (key, Key(key.model_name, "")):
            if (where, name) in self.facts:
                return self.facts[where, name]
            if (where, name) in self.fact_values:
                return values[self.fact_values[where, name]]
        return None

    def _watch(self, select: Selection) -> dict[Key, Watched]:
        counters: dict[Key, dict[Metric, Terms]] = defaultdict(dict)
        for scalar in self.scalars:
            if scalar.metric in WATCHED_METRICS and scalar.tier in ("", "device"):
                counters[scalar.key][scalar.metric] = scalar.terms
        computed = first_present(self.engine.prefill_tokens, c.PROMPT_TOKENS, select)
        bases = bases_of(self.engine, select)
        return {
            key: Watched(
                *(basis := bases.get(key, BasisTerms()))[:3],
                requests=self._request_terms(key),
                counters=counters.get(key, {}),
                prefill_tokens=computed.get(key),
                doubt=basis.doubt,
            )
            for key in self.keys
        }

    def _request_terms(self, key: Key) -> tuple[Terms, Terms, Terms] | None:
        by_metric = {h.metric: h for h in self.histograms if h.key == key}
        computed = by_metric.get(c.ENGINE_COMPUTED_PROMPT_TOKENS)
        prompt = by_metric.get(c.ENGINE_PROMPT_TOKENS)
        if computed is None or prompt is None:
            return None
        block = self._block_size(key)
        common = sorted(set(computed.edges) & set(prompt.edges))
        threshold = next((edge for edge in common if edge >= block), None)
        if threshold is None:
            return None
        self.thresholds[key] = threshold
        return (
            Terms(computed.counts[computed.edges.index(threshold)]),
            Terms(prompt.counts[prompt.edges.index(threshold)]),
            Terms(prompt.counts[-1]),
        )

    def _block_size(self, key: Key) -> float:
        for where in (key, Key(key.model_name, "")):
            text = self.facts.get((where, "block_size"))
            if text is not None and text.isdigit():
                return float(text)
        return float(self.engine.default_block_size)


_PLANS: WeakKeyDictionary[Layout, dict[str, Plan]] = WeakKeyDictionary()
"""By layout and engine: a plan holds nothing of a target, so targets with the same layout share it."""


def plan_of(engine: Engine, layout: Layout) -> Plan:
    """The plan for pages of this layout."""
    plans = _PLANS.setdefault(layout, {})
    return plans.get(engine.name) or plans.setdefault(engine.name, Plan(engine, layout.series))


WATCHED_METRICS = (
    c.PROMPT_TOKENS,
    c.PREFIX_QUERY_TOKENS,
    c.PREFIX_HIT_TOKENS,
    c.ENGINE_REQUESTS,
    c.PREEMPTIONS,
    c.EVICTED_TOKENS,
    c.ENGINE_PREFILL_SECONDS,
)


def histograms(metric: Metric, source: Source, select: Selection) -> list[Histogram]:
    buckets: dict[Key, dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index in select.indices(source.family + "_bucket", source):
        try:
            edge = float(select.labels[index].get("le", ""))
        except ValueError:
            continue
        buckets[select.key(index, unranked=source.unranked)][edge].append(index)
    sums: dict[Key, list[int]] = defaultdict(list)
    for index in select.indices(source.family + "_sum", source):
        sums[select.key(index, unranked=source.unranked)].append(index)
    return [
        Histogram(metric, key, edges, tuple(tuple(by_edge[e]) for e in (*edges, INF)), tuple(sums[key]))
        for key, by_edge in buckets.items()
        if (edges := _complete_edges(by_edge)) is not None and key in sums
    ]


def _complete_edges(by_edge: dict[float, list[int]]) -> tuple[float, ...] | None:
    """Finite edges that all summed series have; None without +Inf, since the total is then unknown."""
    if INF not in by_edge:
        return None
    series = len(by_edge[INF])
    return tuple(sorted(e for e, found in by_edge.items() if e != INF and len(found) == series))


def _facts(
    engine: Engine, select: Selection
) -> tuple[dict[tuple[Key, str], str], dict[tuple[Key, str], int]]:
    """Facts that are label values on the page, and indices of those that are the value of a gauge."""
    texts: dict[tuple[Key, str], str] = {}
    indices: dict[tuple[Key, str], int] = {}
    for fact in engine.facts:
        for index in select.indices(fact.family, Source(fact.family)):
            where = (select.key(index), fact.name)
            if not fact.labels:
                indices.setdefault(where, index)
            elif (text := _product([select.labels[index].get(label, "") for label in fact.labels])) != "":
                texts.setdefault(where, text)
    return texts, indices


def _product(texts: list[str]) -> str:
    if len(texts) == 1:
        return "" if texts[0] == "None" else texts[0]
    if not all(text.isdigit() for text in texts):
        return ""
    product = 1
    for text in texts:
        product *= int(text)
    return str(product) if product else ""


def _indices_to_watch(engine: Engine, select: Selection, plan: Plan) -> set[int]:
    """Indices of all series that a window may read, second choices included.

    Otherwise a page that once lacks the first choice would make an old counter look new.
    """
    watched = {
        i for w in plan.watched.values() for terms in w.requests or () for i in (*terms.plus, *terms.minus)
    }
    rules = [rule for rule in engine.rules if rule.metric in WATCHED_METRICS]
    sources = [source for rule in rules for source in rule.sources]
    bases = (*engine.bases, *engine.witnesses)
    sources += [s for basis in bases for s in (*basis.cached, basis.prompt, *basis.absent_unless)]
    sources += (*engine.prefill_tokens, *engine.cache_resets)
    for source in sources:
        for terms in select.terms(source, "counter").values():
            watched.update(terms.plus, terms.minus)
    return watched
