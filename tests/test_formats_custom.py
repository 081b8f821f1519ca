"""format: custom: any JSON log by a table of paths, and clear refusals of a table that cannot work."""

import json
from typing import Any

import pytest

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry

FIELDS = {
    "prompt_tokens": "llm.in",
    "cached_tokens": "llm.cached",
    "written_tokens": "llm.written",
    "output_tokens": "llm.out",
    "ttft_ms": "t.first",
    "duration_seconds": "t.total",
    "timestamp": "at",
    "model_name": "llm.models.0",
    "provider": "llm.vendor",
    "group": "team",
    "status": "code",
    "request_id": "id",
}
LINE: dict[str, Any] = {
    "llm": {"in": "100", "cached": 40.0, "written": 10, "out": 7, "models": ["m"], "vendor": "hosted_vllm"},
    "t": {"first": 250, "total": 1.5},
    "at": "2026-11-29T10:00:01Z",
    "team": "search",
    "code": 200,
    "id": "r1",
}


def decode(line: dict[str, Any], fields: dict[str, str], **options: str) -> Entry:
    made = DecoderOptions(fields=fields, **options)  # type: ignore[arg-type]
    (entry,) = get_format("custom").decoder(made).decode([json.dumps(line).encode()])
    return entry


def test_every_field() -> None:
    """Each path fills its field; granule and minimum go by the provider."""
    assert decode(LINE, FIELDS) == RequestRecord(
        100, 40, 10, 7, 0.25, 1.5, 1795946401.0, "hosted_vllm", "m", "search", "ok", "r1", (), 16, 16
    )


def test_disjoint_prompt_counts() -> None:
    """With prompt_includes_cached "false", reads and writes are added."""
    entry = decode(LINE, {**FIELDS, "prompt_includes_cached": "false"})
    assert isinstance(entry, RequestRecord)
    assert (entry.prompt_tokens, entry.cached_tokens, entry.uncached_tokens) == (150, 40, 100)


def test_literals_win_over_the_provider() -> None:
    """granule and minimum_tokens of the table hold for every record."""
    entry = decode(LINE, {**FIELDS, "granule": "32", "minimum_tokens": "0"})
    assert isinstance(entry, RequestRecord)
    assert (entry.granule, entry.minimum_tokens) == (32, 0)


def test_seconds_and_group_by() -> None:
    """ttft_seconds is taken as it stands; group_by wins over the table's group."""
    fields = {"prompt_tokens": "n", "ttft_seconds": "s", "group": "team"}
    entry = decode({"n": 9, "s": 0.5, "team": "a", "route": "b"}, fields, group_by="route")
    assert isinstance(entry, RequestRecord)
    assert (entry.ttft_seconds, entry.group) == (0.5, "b")


def test_otel_attributes_with_dots() -> None:
    """T4 in OpenTelemetry's form: keys with dots, inclusive, prompt 130,213 and 5 uncached."""
    names = {"prompt_tokens": "input_tokens", "cached_tokens": "cache_read", "written_tokens": "cache_write"}
    fields = {field: f"gen_ai.usage.{name}" for field, name in names.items()}
    line = {
        "gen_ai.usage.input_tokens": 130213,
        "gen_ai.usage.cache_read": 128955,
        "gen_ai.usage.cache_write": 1253,
    }
    entry = decode(line, fields)
    assert isinstance(entry, RequestRecord)
    assert (entry.prompt_tokens, entry.cached_tokens, entry.uncached_tokens) == (130213, 128955, 5)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"llm": {}}, "no_usage"),
        ({"llm": {"in": -1}}, "invalid"),
        ({"llm": {"in": True}}, "invalid"),
        ({"llm": {"in": [1]}}, "invalid"),
        ({"llm": {"in": 10, "cached": 11}}, "cached_exceeds_prompt"),
    ],
)
def test_bad_counts(change: dict[str, Any], expected: str) -> None:
    """The reasons are those of every other format."""
    entry = decode({**LINE, **change}, FIELDS)
    assert isinstance(entry, RecordError)
    assert entry.reason == expected


def test_failed_requests() -> None:
    """A status that means failure skips the record."""
    entry = decode({**LINE, "code": 503}, FIELDS)
    assert isinstance(entry, Skipped)
    assert (entry.reason, entry.group) == ("server_error", "search")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "fields.prompt_tokens: give the dotted path"),
        ({"prompt_tokens": "a", "promt": "b"}, "unknown field 'promt': use prompt_tokens"),
        ({"prompt_tokens": "a", "granule": "many"}, "fields.granule: 'many' is not a number of tokens"),
        ({"prompt_tokens": "a", "prompt_includes_cached": "yes"}, 'write "true" or "false"'),
    ],
)
def test_tables_that_cannot_work(fields: dict[str, str], message: str) -> None:
    """The error names the entry and says what to write."""
    with pytest.raises(ValueError, match=message):
        get_format("custom").decoder(DecoderOptions(fields=fields))
