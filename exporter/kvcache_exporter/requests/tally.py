"""Counters and histograms of one prompt group, filled in batches, and their bytes in the state file."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.model import OUTCOMES, Aggregate, Distribution, Outcome, RequestRecord, Sample
from kvcache_exporter.requests.outcome import FullHit, classify
from kvcache_exporter.requests.prices import Price
from kvcache_exporter.requests.rewarm import Floor

_DIAGNOSIS = RequestRecord._fields.index("diagnosis")


class Money(msgspec.Struct):
    """US dollars, and how many requests they stand for."""

    priced: int = 0
    unpriced: int = 0
    cost: float = 0.0
    without_cache: float = 0.0

    def add(self, records: Iterable[RequestRecord], price: Price | None) -> None:
        for record in records:
            bill = price.bill(record) if price else None
            if bill is None:
                self.unpriced += 1
            else:
                self.priced += 1
                self.cost += bill.cost
                self.without_cache += bill.without_cache

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
    """Observations by bucket (not cumulative), one more than there are edges; edges are the catalogue's."""

    counts: list[int]
    sum: float = 0.0

    def add(self, values: Iterable[float], edges: Sequence[float]) -> None:
        ordered = sorted(values)
        below = 0
        for bucket, edge in enumerate(edges):
            upto = bisect_right(ordered, edge, lo=below)
            self.counts[bucket] += upto - below
            below = upto
        self.counts[-1] += len(ordered) - below
        self.sum += sum(ordered)

    def distribution(self, edges: tuple[float, ...]) -> Distribution:
        return Distribution(edges, tuple(map(float, accumulate(self.counts))), self.sum)


class Tally(msgspec.Struct):
    """Everything counted of one provider, model and group of a source."""

    outcomes: dict[str, int] = {}
    prompt_tokens: int = 0
    """Of requests whose cached tokens are known: the two make one ratio."""
    cached_tokens: int = 0
    output_tokens: int = 0
    written_tokens: dict[str, int] = {}
    errors: dict[str, int] = {}
    diagnosed: dict[str, int] = {}
    """Requests by the reason their provider gave for a miss, and the tokens missed for it."""
    diagnosed_tokens: dict[str, int] = {}
    aggregates: int = 0
    """Figures that cover many requests: their tokens are in the sums above, in nothing else."""
    ttft: dict[str, Histogram] = {}
    duration: dict[str, Histogram] = {}
    computed_tokens: Histogram | None = None
    cached_ratio: Histogram | None = None
    money: Money = msgspec.field(default_factory=Money)
    floor: Floor = msgspec.field(default_factory=Floor)

    def add(self, records: Sequence[RequestRecord], full_hit: FullHit) -> dict[Outcome, list[RequestRecord]]:
        """Count them; returns them by outcome."""
        by_outcome: dict[Outcome, list[RequestRecord]] = {}
        for record in records:
            outcome = classify(
                record.prompt_tokens, record.cached_tokens, record.granule, record.minimum_tokens, full_hit
            )
            by_outcome.setdefault(outcome, []).append(record)
        for outcome, found in by_outcome.items():
            self._add_outcome(outcome, found)
        self.floor.observe(records)
        return by_outcome

    def _add_outcome(self, outcome: Outcome, records: list[RequestRecord]) -> None:
        columns = list(zip(*records, strict=True))
        prompt, cached, written, output, ttft, duration = columns[:6]
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + len(records)
        self.output_tokens += sum(filter(None, output))
        observe(self.ttft, outcome, [v for v in ttft if v is not None])
        observe(self.duration, outcome, [v for v in duration if v is not None])
        if any(written):
            self._add_written(records)
        if outcome != "unknown":
            self._add_known(prompt, cached)
        for reason, tokens in filter(None, columns[_DIAGNOSIS]):
            self.diagnosed[reason] = self.diagnosed.get(reason, 0) + 1
            self.diagnosed_tokens[reason] = self.diagnosed_tokens.get(reason, 0) + tokens

    def _add_known(self, prompt: Sequence[int], cached: Sequence[int]) -> None:
        self.prompt_tokens += sum(prompt)
        self.cached_tokens += sum(cached)
        if self.computed_tokens is None or self.cached_ratio is None:
            self.computed_tokens = Histogram([0] * (len(c.TOKEN_BUCKETS) + 1))
            self.cached_ratio = Histogram([0] * (len(c.RATIO_BUCKETS) + 1))
        self.computed_tokens.add([p - r for p, r in zip(prompt, cached, strict=True)], c.TOKEN_BUCKETS)
        ratios = [r / p for p, r in zip(prompt, cached, strict=True) if p]
        self.cached_ratio.add(ratios, c.RATIO_BUCKETS)

    def _add_written(self, records: Sequence[RequestRecord | Aggregate]) -> None:
        for record in records:
            split = dict(record.written_by_ttl)
            split["default"] = (record.written_tokens or 0) - sum(split.values())
            for ttl, tokens in split.items():
                if tokens > 0:
                    self.written_tokens[ttl] = self.written_tokens.get(ttl, 0) + tokens

    def add_aggregate(self, aggregate: Aggregate) -> None:
        self.aggregates += 1
        self.prompt_tokens += aggregate.prompt_tokens
        self.cached_tokens += aggregate.cached_tokens
        self.output_tokens += aggregate.output_tokens or 0
        if aggregate.written_tokens:
            self._add_written([aggregate])

    def add_error(self, reason: str) -> None:
        self.errors[reason] = self.errors.get(reason, 0) + 1

    @property
    def hits(self) -> tuple[int, int]:
        """Requests that skipped prefill, and requests of which that is known."""
        known = sum(count for outcome, count in self.outcomes.items() if outcome != "unknown")
        return self.outcomes.get("full", 0), known

    def samples(self, labels: tuple[str, str, str, str]) -> Iterator[Sample]:
        """`labels` are those of REQ: source, provider, model_name, group."""
        if self.outcomes:
            # All outcomes from the start: a series born above zero hides its first increase.
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


def observe(histograms: dict[str, Histogram], outcome: Outcome, seconds: list[float]) -> None:
    if seconds:
        histogram = histograms.get(outcome)
        if histogram is None:
            histogram = histograms[outcome] = Histogram([0] * (len(c.SECONDS_BUCKETS) + 1))
        histogram.add(seconds, c.SECONDS_BUCKETS)
