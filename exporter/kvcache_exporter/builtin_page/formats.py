"""Formats numbers for the page, with units, or with words if there is no number."""

from datetime import UTC, datetime
from math import floor, log10
from typing import Protocol

from kvcache_exporter.summary.figures import Cost, Engines, EventWindow
from kvcache_exporter.summary.schema import Replica

NO_TRAFFIC = "no traffic"
NOT_REPORTED = "not reported"
NO_PRICE = "no price"
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def percent(value: float | None) -> str:
    return NO_TRAFFIC if value is None else f"{100 * value:.1f} %"


class Ratios(Protocol):
    """Hit rates of the same traffic."""

    @property
    def token_hit_ratio(self) -> float | None: ...

    @property
    def request_hit_ratio(self) -> float | None: ...


def by_requests(ratios: Ratios) -> str:
    """With a rate by tokens there is traffic, so that a missing rate by requests means not reported."""
    missing = ratios.request_hit_ratio is None and ratios.token_hit_ratio is not None
    return NOT_REPORTED if missing else percent(ratios.request_hit_ratio)


def brief(text: str) -> str:
    """For tables with many columns."""
    return "\N{EN DASH}" if text == NOT_REPORTED else text


class Gap(Ratios, Protocol):
    """Hit rates with their difference."""

    @property
    def gap(self) -> float | None: ...


def gap(ratios: Gap) -> str:
    return by_requests(ratios) if ratios.gap is None else points(ratios.gap)


def points(value: float) -> str:
    """A difference of two ratios, in percentage points."""
    return f"{100 * value:+.1f} pp"


def absent(engines: Engines) -> str:
    """The reason why there are no figures at all; empty if there may be some."""
    if not engines.targets_up:
        return "no answer"
    # Rates take two pages.
    return "" if engines.windows["1m"].seconds is not None else "not yet"


def usage(value: float | None) -> str:
    return NOT_REPORTED if value is None else f"{100 * value:.0f} %"


def number(value: float | None) -> str:
    """Three digits, with a prefix from a thousand on."""
    if value is None:
        return NOT_REPORTED
    for size, prefix in _PREFIXES:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g}"


def rate(value: float | None, unit: str = "") -> str:
    return NOT_REPORTED if value is None else f"{number(value)}{unit and ' ' + unit}/s"


def evicted(replica: Replica) -> str:
    """By the engine's counter, by its KV events, or both."""
    known = {"tokens": replica.evicted_tokens_per_second, "blocks": replica.evicted_blocks_per_second}
    return ", ".join(rate(value, unit) for unit, value in known.items() if value is not None) or NOT_REPORTED


def evicted_blocks(window: EventWindow, tier: str) -> str:
    """A tier missing from the window had no events."""
    return rate(window.evicted_blocks_per_second.get(tier, 0.0))


def stored_blocks(window: EventWindow, tier: str) -> str:
    return rate(window.stored_blocks_per_second.get(tier, 0.0))


def count(value: int) -> str:
    """Exact."""
    return f"{value:,}"


def dollars(value: float) -> str:
    """Cents from ten cents on, three digits below."""
    amount = abs(value)
    text = f"{amount:,.2f}" if amount >= 0.1 or not amount else f"{amount:.{2 - floor(log10(amount))}f}"
    return f"{'-' if value < 0 else ''}${text}"


def spent(cost: Cost) -> str:
    return _priced(cost, cost.cost_usd)


def without_cache(cost: Cost) -> str:
    return _priced(cost, cost.cost_without_cache_usd)


def saved(cost: Cost) -> str:
    """The savings, with their share of the cost without a cache."""
    share = "" if cost.savings_ratio is None else f" ({percent(cost.savings_ratio)})"
    return _priced(cost, cost.savings_usd) + share


def _priced(cost: Cost, value: float | None) -> str:
    if value is None:
        return NO_PRICE if cost.unpriced_requests else NO_TRAFFIC
    return dollars(value)


def at_most(seconds: float | None, last_edge: float) -> str:
    """The upper edge of a quantile's bucket; None is beyond the last edge."""
    return f"> {_seconds(last_edge)}" if seconds is None else f"≤ {_seconds(seconds)}"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:g} ms" if seconds < 1 else f"{seconds:g} s"


def duration(seconds: float | None) -> str:
    """Two units at most."""
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    for size, unit, smaller, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {part}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def size(count: float) -> str:
    """Bytes."""
    text = number(count)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def clock(at: float) -> str:
    """Unix seconds as a time of day, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
