"""What holds of every format for every input: entries, never exceptions, and counts that make sense."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.catalogue import PARSE_FAILURE_REASONS, REQUEST_ERROR_REASONS, SKIP_REASONS
from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import OUTCOMES, Aggregate, RequestRecord, Skipped
from kvcache_exporter.requests.formats import FORMATS
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry, Format
from kvcache_exporter.requests.outcome import FullHit, classify

FIELDS = {
    "prompt_tokens": "usage.prompt_tokens", "cached_tokens": "usage.prompt_tokens_details.cached_tokens",
    "ttft_ms": "ttft_ms", "timestamp": "ts", "status": "status", "model_name": "model",
}  # fmt: skip
REASONS = {*REQUEST_ERROR_REASONS, *SKIP_REASONS}
KEYS = (
    "usage", "prompt_tokens", "input_tokens", "prompt_tokens_details", "input_tokens_details",
    "cached_tokens", "cache_write_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
    "cache_creation", "ephemeral_5m_input_tokens", "completion_tokens", "output_tokens", "metadata",
    "usage_object", "hidden_params", "status", "type", "message", "log", "delta", "stop_reason", "response",
    "error", "model", "provider", "custom_llm_provider", "route", "group", "request_tags", "request_id", "id",
    "ts", "created", "ttft_ms", "latency_ms", "stream", "startTime", "endTime", "completionStartTime",
    "usageMetadata", "promptTokenCount", "cachedContentTokenCount", "total_input_tokens", "inputTokens",
    "cacheReadInputTokens", "cacheDetails", "ttl", "metrics", "latencyMs", "queue_time_ms", "data",
    "time_to_first_token_ms", "choices", "object", "timings", "prompt_n", "cache_n", "done",
    "prompt_eval_count", "total_duration", "perf_metrics", "response_headers", "native_tokens_prompt", "out",
    "meta_info", "event", "rid", "prompt_cache_hit_tokens", "total_tokens", "reasoning_tokens",
    "cache_hit", "ddsource", "finish_reason", "request_received_ts", "first_token_latency", "e2e_latency",
)  # fmt: skip
WORDS = (
    "2000", "ok", "failed", "message_start", "message_delta", "message_stop", "response.completed", "litellm",
    "2026-11-29T10:00:01.5Z", "\u0000", "text_completion", "request.finished", "openai.x", "1h", "abort", "²",
)  # fmt: skip
NUMBERS = (0, 1, 2000, 1024, -1, 0.5, 1e300, 1795946401.0)
VALUES: st.SearchStrategy[Any] = (
    st.sampled_from((*WORDS, *NUMBERS, True, False, None, [], {}))
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
JSON = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=30,
)
few = settings(max_examples=25)
every_format = pytest.mark.parametrize("format_", FORMATS, ids=[known.name for known in FORMATS])


def make(format_: Format, group_by: str = "") -> Decoder:
    fields = FIELDS if format_.name == "custom" else {}
    return format_.decoder(DecoderOptions(group_by=group_by, fields=fields))


def check(entry: Entry) -> None:
    if isinstance(entry, RecordError):
        assert entry.reason in PARSE_FAILURE_REASONS
    elif isinstance(entry, Skipped):
        assert entry.reason in REASONS
    elif isinstance(entry, Aggregate):
        assert entry.uncached_tokens >= 0
    else:
        check_record(entry)


def check_record(entry: RequestRecord) -> None:
    counts = (entry.prompt_tokens, entry.cached_tokens, entry.written_tokens, entry.output_tokens)
    for count in counts:
        assert count is None or (type(count) is int and count >= 0)
    if entry.prompt_tokens is not None:
        assert (entry.cached_tokens or 0) + (entry.written_tokens or 0) <= entry.prompt_tokens
    for time in (entry.ttft_seconds, entry.duration_seconds, entry.timestamp):
        assert time is None or 0 <= time < 1e10
    for text in (entry.provider, entry.model_name, entry.group, entry.request_id, entry.status):
        assert type(text) is str
        assert len(text) <= 200
        text.encode()
    result = classify(counts[0], counts[1], entry.granule, entry.minimum_tokens, FullHit())
    assert result in OUTCOMES


@every_format
@few
@given(values=st.lists(JSON, max_size=5))
def test_any_json_gives_entries(format_: Format, values: list[Any]) -> None:
    """No JSON raises, and what comes out as a record makes sense."""
    lines = [json.dumps(value).encode() for value in values]
    decoder = make(format_, group_by="metadata.usage_object.0")
    entries = [*decoder.decode(lines), *decoder.flush()]
    for entry in entries:
        check(entry)


@every_format
@few
@given(lines=st.lists(st.binary(max_size=60) | st.sampled_from((b"{", b"[{}", b"\xef\xbb\xbf{}", b"[[[]]]"))))
def test_any_bytes_give_entries(format_: Format, lines: list[bytes]) -> None:
    """No bytes raise."""
    decoder = make(format_)
    for entry in [*decoder.decode(lines), *decoder.flush()]:
        check(entry)


@every_format
@few
@given(values=st.lists(JSON, max_size=6), cut=st.integers(0, 6))
def test_batches_do_not_matter(format_: Format, values: list[Any], cut: int) -> None:
    """The same lines in one batch, in two, or over a restart give the same entries."""
    lines = [json.dumps(value).encode() for value in values]
    whole, first, second = make(format_), make(format_), make(format_)
    expected = [*whole.decode(lines), *whole.flush()]
    got = first.decode(lines[:cut])
    second.restore(first.snapshot())
    got += [*second.decode(lines[cut:]), *second.flush()]
    assert [repr(entry) for entry in got] == [repr(entry) for entry in expected]
