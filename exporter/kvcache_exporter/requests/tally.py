"""Counters and histograms of one prompt group, added to in batches and kept in the state file."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import add, sub
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.model import OUTCOMES, Aggregate, Distribution, Outcome, RequestColumns, Sample
from kvcache_exporter.requests.outcome import FullHit, classify_all
from kvcache_exporter.requests.rates import Bill
from kvcache_exporter.requests.rewarm import Floor

Pairs = tuple[tuple[str, int], ...]
"""Tokens by TTL."""


class Money(msgspec.Struct):
    """Costs in US dollars, and how many requests they cover."""

    priced: int = 0
    unpriced: int = 0
    cost: float = 0.0
    without_cache: float = 0.0

    def add(self, bills: Iterable[Bill | None]) -> "Money":
        """Add one bill for each request, None if its cost is not known; returns their sum."""
        before = astuple(self)
        for bill in bills:
            if bill is None:
                self.unpriced += 1
            else:
                self.priced += 1
                self.cost += bill.cost
                self.without_cache += bill.without_cache
        return Money(*map(sub, astuple(self), before))

    def merge(self, other: "Money") -> None:
        self.priced += other.priced
        self.unpriced += other.unpriced
        self.cost += other.cost
        self.without_cache += other.without_cache

    @property
    def savings(self) -> float:
        return self.without_cache - self.cost

    def samples(self, labels: tuple[str, str, str, str]) -> Iterator[Sample]:
        if self.priced + self.unpriced:
            yield Sample(c.REQUEST_COST, labels, self.cost)
            yield Sample(c.REQUEST_COST_WITHOUT_CACHE, labels, self.without_cache)
            yield Sample(c.REQUEST_SAVINGS, labels, self.savings)
            yield Sample(c.REQUESTS_UNPRICED, labels, float(self.unpriced))


class Histogram(msgspec.Struct):
    """Observations by bucket, not cumulative, the last beyond the last of the catalogue's edges."""

    counts: list[int]
    sum: float = 0.0

    def add(self, values: Iterable[float], edges: Sequence[float]) -> None:
        ordered = sorted(values)
        below, every = 0, len(ordered)
        for bucket in range(bisect_left(edges, ordered[0]) if ordered else 0, len(edges)):
            if below == every:
                break
            upto = bisect_right(ordered, edges[bucket], below)
            self.counts[bucket] += upto - below
            below = upto
        self.counts[-1] += every - below
        self.sum += sum(ordered)

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram with the same edges."""
        self.counts = list(map(add, self.counts, other.counts))
        self.sum += other.sum

    def distribution(self, edges: tuple[float, ...]) -> Distribution:
        return Distribution(edges, tuple(map(float, accumulate(self.counts))), self.sum)


class Gained(NamedTuple):
    """What one batch added, by outcome."""

    outcomes: Mapping[Outcome, int]
    ttft: Mapping[Outcome, Histogram]
    money: Money | None = None
    """None without a price table."""


class Tally(msgspec.Struct):
    """Everything counted of one provider, model and group of a source."""

    outcomes: dict[str, int] = {}
    prompt_tokens: int = 0
    """Of requests whose cached tokens are known, so that the two form a ratio."""
    cached_tokens: int = 0
    output_tokens: int = 0
    written_tokens: dict[str, int] = {}
    errors: dict[str, int] = {}
    diagnosed: dict[str, int] = {}
    """Requests by the reason their provider gave for a miss, and the tokens missed for it."""
    diagnosed_tokens: dict[str, int] = {}
    aggregates: int = 0
    """Records that sum up many requests: their tokens are in the sums above and nowhere else."""
    ttft: dict[str, Histogram] = {}
    duration: dict[str, Histogram] = {}
    computed_tokens: Histogram | None = None
    cached_ratio: Histogram | None = None
    money: Money = msgspec.field(default_factory=Money)
    floor: Floor = msgspec.field(default_factory=Floor)

    def add(self, columns: RequestColumns, full_hit: FullHit) -> Gained:
        """Count the requests; returns the part that `ModelTotals` needs as well."""
        prompts, cached, granule = columns.prompt_tokens, columns.cached_tokens, columns.granule
        outcomes = classify_all(prompts, cached, granule, columns.minimum_tokens, full_hit)
        places: dict[Outcome, list[int]] = defaultdict(list)
        for place, outcome in enumerate(outcomes):
            places[outcome].append(place)
        gained = Gained({o: len(p) for o, p in places.items()}, _by_outcome(columns.ttft_seconds, places))
        for outcome, count in gained.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        merge(self.ttft, gained.ttft)
        merge(self.duration, _by_outcome(columns.duration_seconds, places))
        self.output_tokens += sum(filter(None, columns.output_tokens))
        if any(columns.written_tokens):
            self._add_written(columns.written_tokens, columns.written_by_ttl)
        self._add_known(*_known(prompts, cached), granule)
        for reason, tokens in filter(None, columns.diagnosis):
            self.diagnosed[reason] = self.diagnosed.get(reason, 0) + 1
            self.diagnosed_tokens[reason] = self.diagnosed_tokens.get(reason, 0) + tokens
        return gained

    def _add_known(self, prompts: Sequence[int], cached: Sequence[int], granule: int) -> None:
        if not prompts:
            return
        self.prompt_tokens += sum(prompts)
        self.cached_tokens += sum(cached)
        if self.computed_tokens is None or self.cached_ratio is None:
            self.computed_tokens = Histogram([0] * (len(c.TOKEN_BUCKETS) + 1))
            self.cached_ratio = Histogram([0] * (len(c.RATIO_BUCKETS) + 1))
        self.computed_tokens.add(map(sub, prompts, cached), c.TOKEN_BUCKETS)
        ratios = [r / p for p, r in zip(prompts, cached, strict=True) if p]
        self.cached_ratio.add(ratios, c.RATIO_BUCKETS)
        self.floor.observe(prompts, cached, granule)

    def _add_written(self, written: Iterable[int | None], by_ttl: Iterable[Pairs]) -> None:
        counted = self.written_tokens
        for tokens, pairs in zip(written, by_ttl, strict=True):
            rest = tokens or 0
            for ttl, part in pairs:
                rest -= part
                if part > 0:
                    counted[ttl] = counted.get(ttl, 0) + part
            if rest > 0:
                counted["default"] = counted.get("default", 0) + rest

    def add_aggregate(self, aggregate: Aggregate) -> None:
        self.aggregates += 1
        self.prompt_tokens += aggregate.prompt_tokens
        self.cached_tokens += aggregate.cached_tokens
        self.output_tokens += aggregate.output_tokens or 0
        if aggregate.written_tokens:
            self._add_written((aggregate.written_tokens,), (aggregate.written_by_ttl,))

    def add_error(self, reason: str) -> None:
        self.errors[reason] = self.errors.get(reason, 0) + 1

    @property
    def hits(self) -> tuple[int, int]:
        """Full hits, and requests whose outcome is known."""
        known = sum(count for outcome, count in self.outcomes.items() if outcome != "unknown")
        return self.outcomes.get("full", 0), known

    def samples(self, labels: tuple[str, str, str, str]) -> Iterator[Sample]:
        """`labels` are those of REQ: source, provider, model_name, group."""
        if self.outcomes:
            # All outcomes exist from the start: a series that appears above zero hides its first increase.
            for outcome in OUTCOMES:
                yield Sample(c.REQUESTS, (*labels, outcome), float(self.outcomes.get(outcome, 0)))
        if self.outcomes or self.aggregates:
            yield Sample(c.REQUEST_PROMPT_TOKENS, labels, float(self.prompt_tokens))
            yield Sample(c.REQUEST_CACHED_TOKENS, labels, float(self.cached_tokens))
            yield Sample(c.REQUEST_OUTPUT_TOKENS, labels, float(self.output_tokens))
            yield Sample(c.REQUEST_REWARMS, labels, float(self.floor.events))
        yield from self.money.samples(labels)
        for ttl, tokens in sorted(self.written_tokens.items()):
            yield Sample(c.REQUEST_WRITTEN_TOKENS, (*labels, ttl), float(tokens))
        for metric, counts in (
            (c.REQUEST_ERRORS, self.errors),
            (c.REQUEST_DIAGNOSED_MISSES, self.diagnosed),
            (c.REQUEST_DIAGNOSED_TOKENS, self.diagnosed_tokens),
        ):
            for reason, count in sorted(counts.items()):
                yield Sample(metric, (*labels, reason), float(count))
        for metric, histograms in ((c.REQUEST_TTFT, self.ttft), (c.REQUEST_DURATION, self.duration)):
            for name, histogram in sorted(histograms.items()):
                yield Sample(metric, (*labels, name), histogram.distribution(c.SECONDS_BUCKETS))
        yield from self._known_samples(labels)

    def _known_samples(self, labels: tuple[str, str, str, str]) -> Iterator[Sample]:
        pairs: tuple[tuple[Metric, Histogram | None, tuple[float, ...]], ...] = (
            (c.REQUEST_COMPUTED_TOKENS, self.computed_tokens, c.TOKEN_BUCKETS),
            (c.REQUEST_CACHED_RATIO, self.cached_ratio, c.RATIO_BUCKETS),
        )
        for metric, histogram, edges in pairs:
            if histogram is not None:
                yield Sample(metric, labels, histogram.distribution(edges))


def merge(histograms: dict[str, Histogram], gained: Mapping[Outcome, Histogram]) -> None:
    """Histograms of seconds by outcome."""
    for outcome, more in gained.items():
        if outcome in histograms:
            histograms[outcome].merge(more)
        else:
            histograms[outcome] = Histogram(more.counts, more.sum)


def _by_outcome(
    seconds: Sequence[float | None], places: Mapping[Outcome, Sequence[int]]
) -> dict[Outcome, Histogram]:
    """Without outcomes for which no time is known."""
    found: dict[Outcome, Histogram] = {}
    for outcome, own in places.items():
        known = [v for v in map(seconds.__getitem__, own) if v is not None]
        if known:
            found[outcome] = Histogram([0] * (len(c.SECONDS_BUCKETS) + 1))
            found[outcome].add(known, c.SECONDS_BUCKETS)
    return found


def _known(
    prompts: Sequence[int | None], cached: Sequence[int | None]
) -> tuple[Sequence[int], Sequence[int]]:
    """The requests whose two counts are both known."""
    if None not in cached and None not in prompts:
        return prompts, cached  # type: ignore[return-value]  # checked above
    pairs = [(p, r) for p, r in zip(prompts, cached, strict=True) if p is not None and r is not None]
    return tuple(zip(*pairs, strict=True)) or ((), ())  # type: ignore[return-value]  # two columns
