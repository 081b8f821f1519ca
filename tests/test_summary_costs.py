"""Costs in the summary: by window and model, exact, without what was counted before the exporter started."""

from pathlib import Path

import pytest

from fleet import BEGAN, Watched
from kvcache_exporter import catalogue as c
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.prices import load_prices
from kvcache_exporter.summary.figures import Cost

PRICES = load_prices(Path(__file__).parents[1] / "docs" / "prices-example.json")


def record(prompt: int, cached: int, model: str = "gpt-5.1") -> RequestRecord:
    return RequestRecord(prompt, cached, output_tokens=100, provider="openai", model_name=model, group="g")


def costs(watched: Watched, model: str | None = None) -> dict[str, Cost] | None:
    summary = watched.summary()
    scope = next((each for each in summary.models.shown if each.model_name == model), summary.fleet)
    assert scope.requests is not None
    return scope.requests.costs


def test_what_was_spent_and_saved_in_each_window() -> None:
    watched = Watched()
    watched.ledger("api").prices = PRICES
    watched.ledger("api").add([record(10_000, 6_000), record(2_000, 0), record(9_000, 0, model="unheard-of")])
    watched.tick(BEGAN + 1)
    for second in range(2, 400):
        watched.tick(BEGAN + second)
    watched.ledger("api").add([record(1_000, 1_000)])
    watched.tick(BEGAN + 400)
    found = costs(watched)
    assert found is not None
    recent, hour = found["5m"], found["1h"]
    # 1.25, 0.125 and 10 dollars a million of plain, read and output tokens.
    assert recent.cost_usd == pytest.approx(0.001125)
    assert recent.cost_without_cache_usd == pytest.approx(0.00225)
    assert recent.savings_usd == pytest.approx(0.001125)
    assert recent.savings_ratio == pytest.approx(0.5)
    assert (recent.priced_requests, recent.unpriced_requests) == (1, 0)
    assert hour.cost_usd == pytest.approx(0.00675 + 0.0035 + 0.001125)
    assert hour.savings_usd == pytest.approx(0.00675 + 0.001125)
    assert (hour.priced_requests, hour.unpriced_requests) == (3, 1)
    shown = {c.REQUEST_COST: hour.cost_usd, c.REQUEST_COST_WITHOUT_CACHE: hour.cost_without_cache_usd}
    samples = list(watched.ledger("api").samples())
    for metric, value in {**shown, c.REQUEST_SAVINGS: hour.savings_usd}.items():
        counted = [s.value for s in samples if s.metric is metric and isinstance(s.value, float)]
        assert value == pytest.approx(sum(counted))


def test_a_model_without_a_price_costs_nothing_known() -> None:
    watched = Watched()
    watched.ledger("api").prices = PRICES
    watched.ledger("api").add([record(10_000, 6_000), record(9_000, 0, model="unheard-of")])
    watched.tick(BEGAN + 1)
    unknown = costs(watched, "unheard-of")
    assert unknown is not None
    assert unknown["5m"] == Cost(
        cost_usd=None,
        cost_without_cache_usd=None,
        savings_usd=None,
        savings_ratio=None,
        priced_requests=0,
        unpriced_requests=1,
    )
    known = costs(watched, "gpt-5.1")
    assert known is not None
    assert (known["5m"].priced_requests, known["5m"].unpriced_requests) == (1, 0)


def test_without_a_price_table_there_are_no_costs() -> None:
    watched = Watched()
    watched.ledger("api").add([record(10_000, 6_000)])
    watched.tick(BEGAN + 1)
    assert costs(watched) is None


def test_what_a_state_file_brings_back_or_a_failed_commit_takes_back_was_not_spent_now() -> None:
    before = Ledger("api", FullHit())
    before.prices = PRICES
    before.add([record(10_000, 6_000)])
    watched = Watched()
    ledger = watched.ledger("api")
    ledger.prices = PRICES
    ledger.restore(before.changes())
    watched.tick(BEGAN + 1)
    saved = ledger.changes()
    ledger.add([record(50_000, 0)])
    ledger.rollback({**before.changes(), **saved})
    ledger.add([record(1_000, 1_000)])
    watched.tick(BEGAN + 2)
    found = costs(watched)
    assert found is not None
    assert found["1h"].cost_usd == pytest.approx(0.001125)
    assert found["1h"].priced_requests == 1
