"""Misses that an idle time explains, told from the rest."""

import pytest

from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.report import Report


def report(gaps: list[float], **given: object) -> Report:
    """Misses of one group that come `gaps` seconds after each other."""
    made, at = Report(), 1_800_000_000.0
    for gap in gaps:
        at += gap
        values = {"provider": "anthropic", "model_name": "claude-opus-5", **given}
        made.add([RequestRecord(5000, 0, timestamp=at, minimum_tokens=512, **values)])  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("provider", "model", "seconds"),
    [
        ("anthropic", "claude-opus-5", 300),
        ("vertex_ai", "claude-opus-5@20260801", 300),
        ("openai", "gpt-5.1", 3600),
        ("openai", "gpt-5.6-mini", 1800),
        ("dashscope", "qwen-max", 300),
    ],
)
def test_a_miss_after_a_longer_silence_than_the_provider_keeps_is_expired(
    provider: str, model: str, seconds: float
) -> None:
    assert report([0, seconds - 1], provider=provider, model_name=model).totals.expired == 0
    assert report([0, seconds + 1], provider=provider, model_name=model).totals.expired == 1


def test_a_write_that_is_kept_longer_counts() -> None:
    hour = (("1h", 4000),)
    assert report([0, 301, 3601], written_tokens=4000, written_by_ttl=hour).totals.expired == 1
    assert report([0, 3599], written_tokens=4000, written_by_ttl=hour).totals.expired == 0


def test_engines_and_silent_contracts_expire_nothing() -> None:
    for provider, model in (("vllm", "m"), ("gemini", "gemini-3-pro"), ("deepseek", "deepseek-chat")):
        assert report([0, 10**7], provider=provider, model_name=model).totals.expired == 0


def test_hits_first_requests_and_untimed_ones_are_not_expired() -> None:
    assert report([0]).totals.expired == 0
    made = report([0])
    made.add([RequestRecord(5000, 4999, timestamp=1_900_000_000.0, model_name="claude-opus-5")])
    made.add([RequestRecord(5000, 0, model_name="claude-opus-5")])
    assert made.totals.expired == 0
    assert made.as_json()["expired_misses"] == 0
