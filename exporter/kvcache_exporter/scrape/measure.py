"""Evaluates a plan on one page's values: the samples that need no history.

Negative values mark impossible counts and gauges (see `clean`); results that use one are left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.model import Distribution, Sample
from kvcache_exporter.scrape.plan import Histogram, Plan
from kvcache_exporter.scrape.select import Key
from kvcache_exporter.windows import Terms

INF = float("inf")
_BAD = -1.0
_TIERED_GAUGES = (c.CAPACITY_TOKENS, c.USAGE_RATIO, c.USED_TOKENS)
_INFO_FACTS = ("prefix_caching", "block_size", "hash_algorithm", "cache_dtype")


class Identity(NamedTuple):
    """The labels of a target, which come first in its samples."""

    target: str
    namespace: str

    def labels(self, key: Key) -> tuple[str, ...]:
        return (*self, *key)


def clean(values: list[float]) -> tuple[list[float], Counter[str]]:
    """Values with the impossible ones marked, and the number of those by reason."""
    found: Counter[str] = Counter()
    if not values or (min(values) >= 0.0 and sum(values) < INF):
        return values, found
    cleaned = []
    for value in values:
        good = 0.0 <= value < INF
        if not good:
            found["negative" if -INF < value < 0 else "not_finite"] += 1
        cleaned.append(value if good else _BAD)
    return cleaned, found


def requests_under_way(plan: Plan, values: list[float]) -> Counter[Key]:
    """Running and waiting requests by key; preempted ones wait although their prompt was looked up."""
    found: Counter[Key] = Counter()
    for metric, key, _, value in _scalars(plan, values):
        if metric in (c.RUNNING_REQUESTS, c.WAITING_REQUESTS):
            found[key] += int(value)
    return found


def measure(plan: Plan, values: list[float], who: Identity) -> Iterator[Sample]:
    """Counters, gauges and histograms of all keys."""
    tiers: dict[tuple[Key, str], dict[Metric, float]] = defaultdict(dict)
    for metric, key, tier, value in _scalars(plan, values):
        if metric in _TIERED_GAUGES:
            tiers[key, tier][metric] = value
        else:
            yield Sample(metric, (*who.labels(key), tier) if tier else who.labels(key), value)
    _add_capacities(plan, values, tiers)
    for (key, tier), known in tiers.items():
        for metric, value in _complete(known).items():
            yield Sample(metric, (*who.labels(key), tier), value)
    for histogram in plan.histograms:
        if (state := distribution(histogram, values)) is not None:
            phase = ("",) if "phase" in histogram.metric.labels else ()
            yield Sample(histogram.metric, (*who.labels(histogram.key), *phase), state)
    for key, threshold in plan.thresholds.items():
        yield Sample(c.REQUEST_HIT_THRESHOLD, who.labels(key), threshold)
    for key in plan.keys:
        caching = plan.fact("prefix_caching", key, values)
        if caching in ("True", "False"):
            yield Sample(c.PREFIX_CACHING_ENABLED, who.labels(key), float(caching == "True"))


def about(plan: Plan, values: list[float], target: str, version: str = "") -> Iterator[Sample]:
    """Samples about the engine as a whole: version, configuration, process."""
    yield Sample(c.TARGET_MISSING, (target,), float(len(plan.missing)))
    yield Sample(c.TARGET_DEPRECATED, (target,), float(len(plan.deprecated)))
    if plan.start is not None and values[plan.start] > 0:
        yield Sample(c.TARGET_START, (target,), values[plan.start])
    caching, block_size, algorithm, dtype = (_text(_any_fact(plan, name, values)) for name in _INFO_FACTS)
    facts = (plan.basis, caching.lower(), block_size, algorithm, dtype, "")
    yield Sample(c.TARGET_INFO, (target, plan.engine.name, version, *facts), 1.0)


def _any_fact(plan: Plan, name: str, values: list[float]) -> str | float | None:
    """The fact of the first key that has it: keys of caches beside the engine have none."""
    found = (plan.fact(name, key, values) for key in plan.keys)
    return next((fact for fact in found if fact is not None), None)


def _scalars(plan: Plan, values: list[float]) -> Iterator[tuple[Metric, Key, str, float]]:
    for metric, key, tier, terms, combine in plan.scalars:
        value = evaluate(terms, values, combine)
        if value is not None:
            yield metric, key, tier, value


def evaluate(terms: Terms, values: list[float], combine: str = "sum") -> float | None:
    """The value of the terms; None if any of their inputs is marked."""
    plus, minus = terms
    parts = [values[i] for i in plus]
    if min(parts) < 0.0:
        return None
    value = max(parts) if combine == "max" else sum(parts)
    if not minus:
        return value
    taken = [values[i] for i in minus]
    return max(0.0, value - sum(taken)) if min(taken) >= 0.0 else None


def distribution(histogram: Histogram, values: list[float]) -> Distribution | None:
    """A histogram's state; None if it is inconsistent."""
    counts = tuple([sum([values[i] for i in indices]) for indices in histogram.counts])
    total = sum([values[i] for i in histogram.sum])
    # Cumulative counts never fall: a marked value or an inconsistent page shows here.
    if total < 0.0 or counts[0] < 0.0 or list(counts) != sorted(counts):
        return None
    return Distribution(histogram.edges, counts, total)


def _add_capacities(
    plan: Plan, values: list[float], tiers: dict[tuple[Key, str], dict[Metric, float]]
) -> None:
    for key, tier, fact in plan.capacities:
        tokens = plan.fact(fact, key, values)
        number = float(tokens) if tokens is not None else 0.0
        if number > 0:
            tiers[key, tier][c.CAPACITY_TOKENS] = number


def _complete(known: dict[Metric, float]) -> dict[Metric, float]:
    """Computes usage, capacity or used tokens from the other two."""
    capacity, used, usage = (known.get(m) for m in (c.CAPACITY_TOKENS, c.USED_TOKENS, c.USAGE_RATIO))
    if capacity and used is None and usage is not None:
        return {**known, c.USED_TOKENS: usage * capacity}
    if capacity and usage is None and used is not None:
        return {**known, c.USAGE_RATIO: min(1.0, used / capacity)}
    return known


def _text(fact: str | float | None) -> str:
    if fact is None:
        return ""
    return f"{fact:g}" if isinstance(fact, float) else fact
