"""Prices by tier, region, length and provider: each figure by the table's own fields, and nothing guessed."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.columns import in_columns
from kvcache_exporter.requests.prices import Prices, load_prices
from kvcache_exporter.requests.report import Report

M = 1e-6
GPT = {
    "litellm_provider": "openai", "input_cost_per_token": 4 * M, "output_cost_per_token": 20 * M,
    "cache_read_input_token_cost": 0.4 * M, "cache_creation_input_token_cost": 5 * M,
    "cache_creation_input_token_cost_above_12hr": 10 * M,
    "input_cost_per_token_above_272k_tokens": 8 * M, "output_cost_per_token_above_272k_tokens": 30 * M,
    "input_cost_per_token_flex": 2 * M, "output_cost_per_token_flex": 10 * M,
    "cache_read_input_token_cost_flex": 0.2 * M, "cache_creation_input_token_cost_flex": 2.5 * M,
    "cache_creation_input_token_cost_above_12hr_flex": 5 * M,
    "input_cost_per_token_above_272k_tokens_flex": 4 * M,
    "output_cost_per_token_above_272k_tokens_flex": 15 * M,
    "input_cost_per_token_batches": 2 * M, "output_cost_per_token_batches": 10 * M,
    "input_cost_per_token_priority": 8 * M, "output_cost_per_token_priority": 40 * M,
    "cache_read_input_token_cost_priority": 0.8 * M,
    "regional_processing_uplift_multiplier_eu": 1.1,
}  # fmt: skip
CLAUDE = {
    "litellm_provider": "anthropic", "input_cost_per_token": 5 * M, "output_cost_per_token": 25 * M,
    "cache_read_input_token_cost": 0.5 * M, "cache_creation_input_token_cost": 6.25 * M,
    "cache_creation_input_token_cost_above_1hr": 10 * M,
    "input_cost_per_token_batches": 2.5 * M, "output_cost_per_token_batches": 12.5 * M,
    "cache_read_input_token_cost_batches": 0.25 * M, "cache_creation_input_token_cost_batches": 3.125 * M,
    "provider_specific_entry": {"us": 1.1, "fast": 2.0},
}  # fmt: skip
QWEN = {
    "litellm_provider": "dashscope",
    "tiered_pricing": [
        {"range": [0, 32000.0], "input_cost_per_token": 1 * M, "output_cost_per_token": 5 * M,
         "cache_read_input_token_cost": 0.1 * M},
        {"range": [32000.0, 128000.0], "input_cost_per_token": 2 * M, "output_cost_per_token": 9 * M,
         "cache_read_input_token_cost": 0.2 * M},
    ],
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "thinker": {**GPT, "output_cost_per_reasoning_token": 30 * M},
    "plain-thinker": {**GPT, "output_cost_per_reasoning_token": 20 * M},
    "qwen-explicit": {
        "litellm_provider": "dashscope", "input_cost_per_token": 4 * M, "output_cost_per_token": 20 * M,
        "cache_read_input_token_cost": 0.8 * M, "explicit_cache_read_input_token_cost": 0.1 * M,
    },
    "own": {"input_cost_per_token": 1 * M, "output_cost_per_token": 1 * M},
    "azure/gpt": {**GPT, "litellm_provider": "azure", "input_cost_per_token": 4.4 * M},
    "vertex": {**GPT, "litellm_provider": "vertex_ai-language-models",
               "regional_endpoint_uplift_multiplier": 1.2},
    "together_ai/org/model": {**GPT, "litellm_provider": "together_ai"},
    "vllm/served": {**GPT, "litellm_provider": "vllm"},
}  # fmt: skip


@pytest.fixture
def prices(tmp_path: Path) -> Prices:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"gpt": GPT, "claude": CLAUDE, "qwen": QWEN, **OTHERS}))
    return load_prices(file)


def cost(prices: Prices, model: str, tier: str = "", prompt: int = 100_000, **given: Any) -> float | None:
    """Dollars of a request that read 20,000 and generated 1,000 tokens."""
    values = {"cached_tokens": 20_000, "written_tokens": 0, "output_tokens": 1000, **given}
    record = RequestRecord(prompt, model_name=model, tier=tier, **values)
    price = prices.of("", model)
    assert price is not None
    bill = price.bill(record)
    (columns,) = in_columns([record])
    assert list(price.bills(columns)) == [bill]  # type: ignore[arg-type]  # the record's columns
    return None if bill is None else bill.cost


@pytest.mark.parametrize(
    ("model", "tier", "dollars"),
    [
        ("gpt", "", 0.32 + 0.008 + 0.02),
        ("gpt", "flex", 0.16 + 0.004 + 0.01),
        ("gpt", "priority", 0.64 + 0.016 + 0.04),
        ("gpt", "fast", 0.64 + 0.016 + 0.04),
        ("gpt", "region_eu", 1.1 * 0.348),
        ("gpt", "flex+region_eu", 1.1 * 0.174),
        ("claude", "", 0.4 + 0.01 + 0.025),
        ("claude", "batch", 0.2 + 0.005 + 0.0125),
        ("claude", "fast", 2 * 0.435),
        ("claude", "fast+us", 2.2 * 0.435),
        ("claude", "batch+us", 1.1 * 0.2175),
        ("vertex", "regional", 1.2 * 0.348),
        ("gpt", "regional", 0.348),
        ("qwen-explicit", "explicit_cache", 0.32 + 0.002 + 0.02),
    ],
)
def test_a_tier_is_billed_by_its_own_fields(prices: Prices, model: str, tier: str, dollars: float) -> None:
    assert cost(prices, model, tier) == pytest.approx(dollars)


@pytest.mark.parametrize(
    ("model", "tier", "given"),
    [
        ("gpt", "batch", {}),  # no price for what a batch reads
        ("gpt", "scale", {}),
        ("gpt", "audio", {}),
        ("gpt", "flex+priority", {}),
        ("gpt", "region_us", {}),
        ("gpt", "explicit_cache", {}),
        ("gpt", "priority", {"prompt": 300_000}),  # long prompts have no priority price
        ("gpt", "priority", {"written_tokens": 10}),
        ("claude", "priority", {}),
        ("claude", "compaction", {}),
        ("claude", "batch", {"written_tokens": 10, "written_by_ttl": (("1h", 10),)}),
        ("claude", "eu", {}),
    ],
)
def test_what_the_table_does_not_say_is_unpriced(
    prices: Prices, model: str, tier: str, given: dict[str, Any]
) -> None:
    assert cost(prices, model, tier, **given) is None


def test_a_tier_of_long_prompts(prices: Prices) -> None:
    """Above 272k reads keep their usual price where they have none of their own; in flex that is a guess."""
    assert cost(prices, "gpt", prompt=300_000) == pytest.approx(280_000 * 8 * M + 0.008 + 0.03)
    assert cost(prices, "gpt", "flex", prompt=300_000) is None
    found = cost(prices, "gpt", "flex", prompt=300_000, cached_tokens=0)
    assert found == pytest.approx(300_000 * 4 * M + 0.015)


def test_a_12_hour_write_in_a_tier(prices: Prices) -> None:
    found = cost(prices, "gpt", "flex", written_tokens=1000, written_by_ttl=(("12h", 1000),))
    assert found == pytest.approx(79_000 * 2 * M + 0.004 + 1000 * 5 * M + 0.01)


@pytest.mark.parametrize(("prompt", "dollars"), [
    (32_000, 12_000 * M + 0.002 + 0.005), (32_001, 12_001 * 2 * M + 0.004 + 0.009),
])  # fmt: skip
def test_prices_listed_by_length_of_prompt(prices: Prices, prompt: int, dollars: float) -> None:
    assert cost(prices, "qwen", prompt=prompt) == pytest.approx(dollars)


def test_a_batch_of_several_tiers_is_billed_one_by_one(prices: Prices) -> None:
    records = [RequestRecord(1000, 0, 0, 0, model_name="gpt", tier=tier) for tier in ("", "flex", "scale")]
    (columns,) = in_columns(records)
    price = prices.of("openai", "gpt")
    assert price is not None
    bills = [bill and bill.cost for bill in price.bills(columns)]  # type: ignore[arg-type]  # as above
    assert bills == [pytest.approx(0.004), pytest.approx(0.002), None]


def test_a_model_whose_thinking_has_another_price_has_none(prices: Prices) -> None:
    """Logs do not split the output."""
    assert prices.of("openai", "thinker") is None
    assert prices.of("openai", "plain-thinker") is not None


@pytest.mark.parametrize(("provider", "model", "found"), [
    ("openai", "gpt", "gpt"),
    ("", "gpt", "gpt"),
    ("my-gateway", "gpt", "gpt"),
    ("azure", "gpt", "azure/gpt"),
    ("azure.ai.openai", "gpt", "azure/gpt"),
    ("Azure-OpenAI", "gpt", "azure/gpt"),
    ("azure", "claude", None),
    ("anthropic", "gpt", None),
    ("gcp.vertex_ai", "vertex", "vertex"),
    ("vertexai", "publishers/google/models/vertex", "vertex"),
    ("together", "org/model", "together_ai/org/model"),
    ("vllm", "gpt", None),
    ("hosted_vllm", "openai/gpt", None),
    ("sglang", "gpt", None),
    ("vllm", "served", "vllm/served"),
    ("vllm", "own", "own"),
])  # fmt: skip
def test_a_provider_bills_its_own_prices(
    prices: Prices, provider: str, model: str, found: str | None
) -> None:
    """A model that an engine of one's own serves under a known name, or another provider, costs something
    else; an entry that names no provider is the operator's own, for whoever serves it.
    """
    expected = None if found is None else prices.table[found]
    assert prices.of(provider, model) is expected


def test_spellings_of_providers_are_looked_up_as_the_table_has_them(prices: Prices) -> None:
    assert prices.of("together_ai", "org/model") is prices.of("together", "org/model")


def test_a_report_names_what_has_no_price(prices: Prices) -> None:
    report = Report(prices=prices)
    records = [("gpt", "scale"), ("gpt", "scale"), ("gpt", ""), ("none", "")]
    report.add(RequestRecord(9, 0, 0, 0, model_name=model, tier=tier) for model, tier in records)
    assert report.unpriced == {("", "gpt", "scale"): 2, ("", "none", ""): 1}
    report.add(RequestRecord(9, 0, 0, 0, model_name=str(number)) for number in range(1100))
    assert report.unpriced.total() == 1103
    assert report.unpriced["other", "other", ""] == 1100 - 998
