"""The catalogue's request metrics in the engine's own Prometheus registry, by model, rank and outcome."""

from functools import cache
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.model import OUTCOMES, Outcome
from kvcache_exporter.plugin.finished import Finished
from kvcache_exporter.requests.outcome import FullHit, cached_by_blocks, classify

RANK = ("model_name", "engine")
"""The labels of vLLM's own metrics."""


class Families(NamedTuple):
    """The catalogue's metrics without the labels that only the exporter knows (source, provider, group)."""

    requests: Counter
    prompt: Counter
    cached: Counter
    output: Counter
    errors: Counter
    ttft: Histogram
    duration: Histogram
    computed: Histogram
    ratio: Histogram


@cache
def families(registry: CollectorRegistry = REGISTRY) -> Families:
    """Registered on first use, then shared: one process may run several ranks and engines."""

    def counter(metric: Metric, *labels: str) -> Counter:
        return Counter(metric.family, metric.help, (*RANK, *labels), registry=registry)

    def histogram(metric: Metric, edges: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(metric.name, metric.help, (*RANK, *labels), buckets=edges, registry=registry)

    return Families(
        counter(c.REQUESTS, "outcome"),
        counter(c.REQUEST_PROMPT_TOKENS),
        counter(c.REQUEST_CACHED_TOKENS),
        counter(c.REQUEST_OUTPUT_TOKENS),
        counter(c.REQUEST_ERRORS, "reason"),
        histogram(c.REQUEST_TTFT, c.SECONDS_BUCKETS, "outcome"),
        histogram(c.REQUEST_DURATION, c.SECONDS_BUCKETS, "outcome"),
        histogram(c.REQUEST_COMPUTED_TOKENS, c.TOKEN_BUCKETS),
        histogram(c.REQUEST_CACHED_RATIO, c.RATIO_BUCKETS),
    )


class RankCounters:
    """Counts the requests of one model on one rank; label children are looked up once."""

    def __init__(self, made: Families, model_name: str, engine: str, full_hit: FullHit, block: int) -> None:
        self._full_hit, self._block = full_hit, block
        self._families, self._labels = made, (model_name, engine)
        # All outcomes exist from the start: a series that appears above zero hides its first increase.
        self._requests = {name: made.requests.labels(*self._labels, name) for name in OUTCOMES}
        self._prompt, self._cached, self._output = (
            family.labels(*self._labels) for family in (made.prompt, made.cached, made.output)
        )
        self._ratio, self._computed = made.ratio.labels(*self._labels), made.computed.labels(*self._labels)
        self._ttft: dict[Outcome, Histogram] = {}
        self._duration: dict[Outcome, Histogram] = {}

    def count(self, request: Finished) -> None:
        prompt, cached, output, ttft, duration, error = request
        if error:
            self._families.errors.labels(*self._labels, error).inc()
            return
        if prompt is not None and cached is not None:
            cached = cached_by_blocks(prompt, cached, self._block)
        # The last token is always computed, so a prompt of at most one block cannot be cached.
        outcome = classify(prompt, cached, self._block, self._block + 1, self._full_hit)
        self._requests[outcome].inc()
        if output:
            self._output.inc(output)
        if prompt is not None and cached is not None:
            self._count_tokens(prompt, cached)
        if ttft is not None:
            self._child(self._families.ttft, self._ttft, outcome).observe(ttft)
        if duration is not None:
            self._child(self._families.duration, self._duration, outcome).observe(duration)

    def _count_tokens(self, prompt: int, cached: int) -> None:
        self._prompt.inc(prompt)
        if cached:
            self._cached.inc(cached)
        self._computed.observe(prompt - cached)
        if prompt:
            self._ratio.observe(cached / prompt)

    def _child(self, family: Histogram, known: dict[Outcome, Histogram], outcome: Outcome) -> Histogram:
        child = known.get(outcome)
        if child is None:
            child = known[outcome] = family.labels(*self._labels, outcome)
        return child
