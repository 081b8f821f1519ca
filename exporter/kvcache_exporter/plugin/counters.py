"""The catalogue's request metrics in the engine's own Prometheus registry, by model, rank and outcome."""

import os
from collections.abc import Iterator
from functools import cache

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kvcache_exporter import catalogue as c
from kvcache_exporter.model import OUTCOMES, Outcome
from kvcache_exporter.plugin.finished import Finished
from kvcache_exporter.plugin.series import Family, Series
from kvcache_exporter.requests.outcome import FullHit, cached_by_blocks, classify

RANK = ("model_name", "engine")
"""The labels of vLLM's own metrics."""


class Families(Collector):
    """The catalogue's metrics without the labels that only the exporter knows (source, provider, group)."""

    def __init__(self) -> None:
        self.requests = Family(c.REQUESTS, *RANK, "outcome")
        self.prompt = Family(c.REQUEST_PROMPT_TOKENS, *RANK)
        self.cached = Family(c.REQUEST_CACHED_TOKENS, *RANK)
        self.output = Family(c.REQUEST_OUTPUT_TOKENS, *RANK)
        self.errors = Family(c.REQUEST_ERRORS, *RANK, "reason")
        self.ttft = Family(c.REQUEST_TTFT, *RANK, "outcome", edges=c.SECONDS_BUCKETS)
        self.duration = Family(c.REQUEST_DURATION, *RANK, "outcome", edges=c.SECONDS_BUCKETS)
        self.computed = Family(c.REQUEST_COMPUTED_TOKENS, *RANK, edges=c.TOKEN_BUCKETS)
        self.ratio = Family(c.REQUEST_CACHED_RATIO, *RANK, edges=c.RATIO_BUCKETS)
        self._process = os.getpid()

    def collect(self) -> Iterator[Metric]:
        return (family.read() for family in self._all())

    def follow_fork(self) -> None:
        """To be called before anything is counted."""
        process = os.getpid()
        if process != self._process:
            self._process = process
            for family in self._all():
                family.reopen()

    def _all(self) -> list[Family]:
        return [family for family in vars(self).values() if isinstance(family, Family)]


@cache
def families(registry: CollectorRegistry = REGISTRY) -> Families:
    """Registered on first use, then shared: one process may run several ranks and engines."""
    made = Families()
    registry.register(made)
    return made


class RankCounters:
    """Counts the requests of one model on one rank; label children are looked up once."""

    def __init__(self, made: Families, model_name: str, engine: str, full_hit: FullHit, block: int) -> None:
        self._full_hit, self._block = full_hit, block
        self._families, self._labels = made, (model_name, engine)
        # All outcomes exist from the start: a series that appears above zero hides its first increase.
        self._requests = {name: made.requests.series(*self._labels, name) for name in OUTCOMES}
        self._prompt, self._cached, self._output, self._ratio, self._computed = (
            family.series(*self._labels)
            for family in (made.prompt, made.cached, made.output, made.ratio, made.computed)
        )
        self._ttft: dict[Outcome, Series] = {}
        self._duration: dict[Outcome, Series] = {}

    def count(self, request: Finished) -> None:
        self._families.follow_fork()
        prompt, cached, output, ttft, duration, error = request
        if error:
            self._families.errors.series(*self._labels, error).inc()
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

    def _child(self, family: Family, known: dict[Outcome, Series], outcome: Outcome) -> Series:
        child = known.get(outcome)
        if child is None:
            child = known[outcome] = family.series(*self._labels, outcome)
        return child
