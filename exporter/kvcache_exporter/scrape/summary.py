"""One target as a whole: all ranks added up, then divided."""

from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.derive import ratio, request_hit_counts, token_increases
from kvcache_exporter.windows import Terms


class Summary(NamedTuple):
    """Values over one window; None without traffic or where the engine does not say."""

    token_hit_ratio: float | None = None
    request_hit_ratio: float | None = None
    preemptions_per_second: float | None = None
    evicted_tokens_per_second: float | None = None


def summarise(collector: TargetCollector, window: float) -> Summary:
    """`window` in seconds."""
    span = collector.span(window)
    if span is None or not collector.up:
        return Summary()
    items = collector.watched.values()
    requests = [counts for item in items if (counts := request_hit_counts(item, span))]
    hits, long_requests = (sum(column) for column in zip((0.0, 0.0), *requests, strict=True))

    def rate(terms: list[Terms]) -> float | None:
        return sum(map(span.increase, terms)) / span.seconds if terms else None

    return Summary(
        ratio(*token_increases(items, span)),
        ratio(hits, long_requests),
        rate([terms for item in items if (terms := item.counters.get(c.PREEMPTIONS))]),
        rate([terms for item in items if (terms := item.counters.get(c.EVICTED_TOKENS))]),
    )
