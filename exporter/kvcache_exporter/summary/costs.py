"""Costs of requests and savings by the cache, over windows."""

from kvcache_exporter.requests.tally import Money
from kvcache_exporter.summary import figures
from kvcache_exporter.summary.gains import SUMMED_WINDOWS, Gains, Model, Series


def series_of(model: Model) -> Series:
    return Series(model, "costs", "")


def counts_of(money: Money) -> tuple[float, ...]:
    """The counts in the order that `costs` expects."""
    return money.priced, money.unpriced, money.cost, money.without_cache


def costs(gains: Gains, model: Model) -> dict[str, figures.Cost] | None:
    """None if no request was ever looked up in a price table."""
    found = {window: gains.counts(window, series_of(model)) for window in SUMMED_WINDOWS}
    priced = {window: _cost(*counts) for window, counts in found.items() if counts is not None}
    return priced or None


def _cost(priced: float, unpriced: float, cost: float, without_cache: float) -> figures.Cost:
    saved = without_cache - cost
    return figures.Cost(
        cost_usd=cost if priced else None,
        cost_without_cache_usd=without_cache if priced else None,
        savings_usd=saved if priced else None,
        savings_ratio=_share(saved, without_cache),
        priced_requests=round(priced),
        unpriced_requests=round(unpriced),
    )


def _share(saved: float, whole: float) -> float | None:
    """A ratio that may be negative."""
    return saved / whole if whole > 0 else None
