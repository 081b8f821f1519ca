"""What is made of increases: ratios and rates over windows."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.scrape.plan import Watched
from kvcache_exporter.windows import Span, Terms


class Derived(NamedTuple):
    """One windowed value; no value where there is no traffic."""

    metric: Metric
    value: float


def ratio(part: float, whole: float) -> float | None:
    """None without traffic, and where the part exceeds the whole: then neither number is to be believed."""
    return part / whole if whole > 0 and 0 <= part <= whole else None


def token_hit_ratio(watched: Watched, span: Span) -> float | None:
    if watched.cached is None or watched.prompt is None:
        return None
    if watched.doubt and span.increase(watched.doubt) > 0:
        return None
    return ratio(span.increase(watched.cached), span.increase(watched.prompt))


def token_increases(items: Iterable[Watched], span: Span) -> tuple[float, float]:
    """Cached and prompt tokens of all keys together; keys whose cached tokens are in doubt are left out."""
    pairs = [
        (span.increase(item.cached), span.increase(item.prompt))
        for item in items
        if item.cached and item.prompt and not (item.doubt and span.increase(item.doubt) > 0)
    ]
    return sum(cached for cached, _ in pairs), sum(prompt for _, prompt in pairs)


def request_hit_counts(watched: Watched, span: Span) -> tuple[float, float] | None:
    """Requests that skipped prefill, and requests with a prompt longer than the threshold.

    A request never computes more than its prompt, so those with a prompt of at most b are among those that
    computed at most b, and the two histograms are enough for the exact share.
    """
    if watched.requests is None:
        return None
    computed, short, total = map(span.increase, watched.requests)
    return computed - short, total - short


def derive(watched: Watched, span: Span) -> Iterator[Derived]:
    """All windowed values of one key over one span."""
    values = {
        c.TOKEN_HIT_RATIO: token_hit_ratio(watched, span),
        c.REQUEST_HIT_RATIO: ratio(*counts) if (counts := request_hit_counts(watched, span)) else None,
        c.PREEMPTIONS_PER_SECOND: _rate(watched.counters.get(c.PREEMPTIONS), span),
        c.EVICTED_TOKENS_PER_SECOND: _rate(watched.counters.get(c.EVICTED_TOKENS), span),
        c.PREFILL_SECONDS_PER_1K: prefill_seconds_per_1k(watched, span),
    }
    return (Derived(metric, value) for metric, value in values.items() if value is not None)


def _rate(terms: Terms | None, span: Span) -> float | None:
    return span.increase(terms) / span.seconds if terms and span.seconds > 0 else None


def prefill_seconds_per_1k(watched: Watched, span: Span) -> float | None:
    seconds = watched.counters.get(c.ENGINE_PREFILL_SECONDS)
    if seconds is None or watched.prefill_tokens is None:
        return None
    tokens = span.increase(watched.prefill_tokens)
    return 1000 * span.increase(seconds) / tokens if tokens > 0 else None
