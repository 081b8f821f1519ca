"""Ratios and rates over windows, from the increases of counters."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.hit_rates import ratio
from kvcache_exporter.scrape.watched import Watched
from kvcache_exporter.windows import Span, Terms


class Derived(NamedTuple):
    """One windowed value; without traffic there is none."""

    metric: Metric
    value: float


def token_increases(items: Iterable[Watched], span: Span) -> tuple[float, float]:
    """Cached and prompt tokens over all keys, without keys whose cached tokens are in doubt."""
    pairs = [
        (span.increase(item.cached), span.increase(item.prompt))
        for item in items
        if item.cached and item.prompt and _credible(item, span)
    ]
    return sum(cached for cached, _ in pairs), sum(prompt for _, prompt in pairs)


def _credible(watched: Watched, span: Span) -> bool:
    if watched.cached is None or watched.prompt is None:
        return False
    return not (watched.doubt and span.increase(watched.doubt) > 0)


def request_hit_counts(watched: Watched, span: Span) -> tuple[float, float] | None:
    """Requests that skipped prefill, and requests with a prompt longer than the threshold.

    A request never computes more than its prompt, so those with a prompt of at most b are among those that
    computed at most b, and the two histograms are enough for the exact share.
    """
    if watched.requests is None:
        return None
    computed, short, total = map(span.increase, watched.requests)
    return computed - short, total - short


class Increases(NamedTuple):
    """Increases of one key in a window; None if the engine does not report it, or not credibly."""

    seconds: float
    """Actual length of the window."""
    cached: float | None = None
    prompt: float | None = None
    """None together with `cached`, so that the two always form a ratio."""
    hits: float | None = None
    long_requests: float | None = None
    """Requests with a prompt longer than the threshold; None together with `hits`."""
    preemptions: float | None = None
    evicted_tokens: float | None = None
    prefill_seconds: float | None = None
    prefill_tokens: float | None = None


def increases(watched: Watched, span: Span) -> Increases:
    cached, prompt = token_increases([watched], span) if _credible(watched, span) else (None, None)
    hits, long_requests = request_hit_counts(watched, span) or (None, None)

    def of(terms: Terms | None) -> float | None:
        return span.increase(terms) if terms else None

    return Increases(
        span.seconds,
        cached,
        prompt,
        hits,
        long_requests,
        of(watched.counters.get(c.PREEMPTIONS)),
        of(watched.counters.get(c.EVICTED_TOKENS)),
        of(watched.counters.get(c.ENGINE_PREFILL_SECONDS)),
        of(watched.prefill_tokens),
    )


def derive(found: Increases) -> Iterator[Derived]:
    """All windowed values of one key over one window."""
    values = {
        c.TOKEN_HIT_RATIO: share(found.cached, found.prompt),
        c.REQUEST_HIT_RATIO: share(found.hits, found.long_requests),
        c.PREEMPTIONS_PER_SECOND: rate(found.preemptions, found.seconds),
        c.EVICTED_TOKENS_PER_SECOND: rate(found.evicted_tokens, found.seconds),
        c.PREFILL_SECONDS_PER_1K: seconds_per_1k(found.prefill_seconds, found.prefill_tokens),
    }
    return (Derived(metric, value) for metric, value in values.items() if value is not None)


def share(part: float | None, whole: float | None) -> float | None:
    """As `ratio`; None if either is not known."""
    return ratio(part, whole) if part is not None and whole is not None else None


def seconds_per_1k(seconds: float | None, tokens: float | None) -> float | None:
    """Seconds of prefill for 1,000 computed tokens; None without traffic."""
    return 1000 * seconds / tokens if seconds is not None and tokens is not None and tokens > 0 else None


def rate(gained: float | None, seconds: float) -> float | None:
    """Per second."""
    return gained / seconds if gained is not None and seconds > 0 else None
