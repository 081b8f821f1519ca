"""Increases of several keys or targets as one: added up first, then divided."""

from collections.abc import Iterable
from typing import NamedTuple

from kvcache_exporter.hit_rates import ratio
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.derive import Increases, rate, seconds_per_1k


class Summary(NamedTuple):
    """Values over one window; None without traffic or if the engine does not report it."""

    token_hit_ratio: float | None = None
    request_hit_ratio: float | None = None
    preemptions_per_second: float | None = None
    evicted_tokens_per_second: float | None = None
    prefill_seconds_per_1k_tokens: float | None = None


def summarise(collector: TargetCollector, window: str) -> Summary:
    """One target over all ranks; `window` is the name of one of its windows."""
    return summary_of(collector.recent.get(window, {}).values())


def summary_of(parts: Iterable[Increases]) -> Summary:
    """Each value is made of the keys that report it credibly."""
    found = list(parts)
    prefill = [(p.prefill_seconds, p.prefill_tokens) for p in found]
    return Summary(
        ratio(*token_totals(found)),
        ratio(*request_totals(found)),
        _sum_of_rates((p.preemptions, p.seconds) for p in found),
        _sum_of_rates((p.evicted_tokens, p.seconds) for p in found),
        seconds_per_1k(*map(sum, zip((0.0, 0.0), *_known(prefill), strict=True))),
    )


def token_totals(parts: Iterable[Increases]) -> tuple[float, float]:
    """Cached and prompt tokens, without keys that have more cached than prompt tokens."""
    return _part_and_whole((p.cached, p.prompt) for p in parts)


def request_totals(parts: Iterable[Increases]) -> tuple[float, float]:
    """Full hits, and requests that could have been one."""
    return _part_and_whole((p.hits, p.long_requests) for p in parts)


def _part_and_whole(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[float, float]:
    possible = [(part, whole) for part, whole in _known(pairs) if 0 <= part <= whole]
    return sum(part for part, _ in possible), sum(whole for _, whole in possible)


def _known(pairs: Iterable[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _sum_of_rates(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    rates = [found for gained, seconds in pairs if (found := rate(gained, seconds)) is not None]
    return sum(rates) if rates else None
