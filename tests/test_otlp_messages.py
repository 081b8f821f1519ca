"""OTLP's two encodings: recorded spans read alike, prompts are never kept, garbage is refused."""

import json
from contextlib import suppress

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Signal
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.formats.spans import Span, SpanReader
from kvcache_exporter.requests.otlp.errors import MalformedError, TooManyError
from kvcache_exporter.requests.otlp.messages import MOST_ITEMS, Encoding, answer, read, refusal
from otlp_recording import SGLANG, VLLM, as_protobuf, exports, request_spans

WANTED = SpanReader(DecoderOptions()).wanted


def read_spans(signal: Signal, encoding: Encoding, body: bytes) -> list[Span]:
    """As `read`, where each item can be read."""
    found = read(signal, encoding, body, WANTED)
    assert all(isinstance(item, Span) for item in found)
    return [item for item in found if isinstance(item, Span)]


@pytest.mark.parametrize("name", [VLLM, SGLANG])
def test_both_encodings_of_a_recording_give_the_same_spans(name: str) -> None:
    as_json = [span for body in exports(name) for span in read_spans("traces", "json", body)]
    as_proto = [
        span for body in exports(name) for span in read_spans("traces", "protobuf", as_protobuf(body))
    ]
    assert [
        (s.span_id, s.trace_id, s.start_nanoseconds, s.end_nanoseconds, s.scope, s.status_code, s.resource)
        for s in as_json
    ] == [
        (s.span_id, s.trace_id, s.start_nanoseconds, s.end_nanoseconds, s.scope, s.status_code, s.resource)
        for s in as_proto
    ]
    reader = SpanReader(DecoderOptions())
    assert [reader.entry(span) for span in as_json] == [reader.entry(span) for span in as_proto]
    wanted = [span for span in as_proto if "gen_ai.usage.prompt_tokens" in span.attributes]
    assert len(wanted) == len(request_spans(name)) > 150


def _pair(key: str, value: str | int) -> KeyValue:
    kind = AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
    return KeyValue(key=key, value=kind)


def log_export(*pairs: tuple[str, str | int]) -> ExportLogsServiceRequest:
    export = ExportLogsServiceRequest()
    record = export.resource_logs.add().scope_logs.add().log_records.add()
    record.event_name, record.time_unix_nano = (
        "gen_ai.client.inference.operation.details",
        1_796_000_000 * 10**9,
    )
    record.body.string_value = "SECRET PROMPT"
    record.attributes.extend(_pair(*pair) for pair in pairs)
    return export


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_no_text_of_a_prompt_is_turned_into_a_value(encoding: Encoding) -> None:
    export = log_export(
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.usage.input_tokens", 12),
        ("gen_ai.input.messages", "SECRET PROMPT"),
        ("gen_ai.prompt", "SECRET PROMPT"),
    )
    body = export.SerializeToString()
    if encoding == "json":
        body = json.dumps(MessageToDict(export)).encode()
    (found,) = read_spans("logs", encoding, body)
    assert found.attributes["gen_ai.operation.name"] == "chat"
    assert int(found.attributes["gen_ai.usage.input_tokens"]) == 12
    assert found.start_nanoseconds == 1_796_000_000 * 10**9
    assert "SECRET" not in repr(found)


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_garbage_is_refused(signal: Signal, encoding: Encoding) -> None:
    for body in (b"\xff\xff\xff", b"{", b"[" * 100_000, b"[]", b'{"resourceSpans": 1, "resourceLogs": 1}'):
        with pytest.raises(MalformedError, match=f"no export of {signal} in {encoding}"):
            read(signal, encoding, body, WANTED)
    assert read(signal, encoding, b"" if encoding == "protobuf" else b"{}", WANTED) == []


@given(st.sampled_from(["traces", "logs"]), st.sampled_from(["protobuf", "json"]), st.binary(max_size=300))
def test_any_body_is_read_or_refused(signal: Signal, encoding: Encoding, body: bytes) -> None:
    reader = SpanReader(DecoderOptions())
    try:
        found = read(signal, encoding, body, WANTED)
    except MalformedError:
        return
    for span in found:
        assert isinstance(span, Span)
        with suppress(RecordError):
            reader.entry(span)


@given(st.data())
def test_a_recorded_export_with_flipped_bytes_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(as_protobuf(exports(VLLM)[-1]))
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read("traces", "protobuf", bytes(body), WANTED)
    except MalformedError:
        return
    assert all(isinstance(span, RecordError) or set(span.attributes) <= WANTED for span in found)


def test_answers_are_messages_in_the_encoding_of_the_request() -> None:
    assert answer("traces", "protobuf", 0, "") == ExportTraceServiceResponse().SerializeToString()
    assert answer("logs", "json", 0, "") == b"{}"
    traces = ExportTraceServiceResponse.FromString(answer("traces", "protobuf", 3, "invalid 3"))
    assert (traces.partial_success.rejected_spans, traces.partial_success.error_message) == (3, "invalid 3")
    logs = ExportLogsServiceResponse.FromString(answer("logs", "protobuf", 2, "invalid 2"))
    assert logs.partial_success.rejected_log_records == 2
    assert json.loads(answer("logs", "json", 2, "x")) == {
        "partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "x"}
    }
    assert refusal("protobuf", "too large") == b"\x12\x09too large", "field 2 of google.rpc.Status"
    assert json.loads(refusal("json", "too large")) == {"message": "too large"}


def _field(number: int, content: bytes) -> bytes:
    size, length = bytearray(), len(content)
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def _in_scope(content: bytes) -> bytes:
    return _field(1, _field(2, content))


BOMBS = {
    "spans": _in_scope(_field(2, b"") * 600_000),
    "attributes": _in_scope(_field(2, _field(9, b"") * 600_000)),
    "resource": _field(1, _field(1, _field(1, b"") * 600_000)),
    "groups": _field(1, b"") * 600_000,
    "fields": _field(1, b"\x08\x00" * 600_000),
    "json": b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 600_000 + b"{}]}]}]}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_small_things_by_the_million_are_refused_before_they_are_objects(name: str) -> None:
    encoding: Encoding = "json" if name == "json" else "protobuf"
    if name == "attributes":
        (found,) = read("traces", encoding, BOMBS[name], WANTED)
        assert isinstance(found, RecordError)
        assert found.reason == "too_long"
    else:
        with pytest.raises(TooManyError):
            read("traces", encoding, BOMBS[name], WANTED)


def test_as_many_items_as_are_allowed_are_read() -> None:
    assert len(read("traces", "protobuf", _in_scope(_field(2, b"") * MOST_ITEMS), WANTED)) == MOST_ITEMS
    with pytest.raises(TooManyError):
        read("traces", "protobuf", _in_scope(_field(2, b"") * (MOST_ITEMS + 1)), WANTED)


@given(st.binary(max_size=60))
def test_the_walk_takes_what_protobuf_takes(body: bytes) -> None:
    """Whatever protobuf reads is walked to the same spans; groups apart, which OTLP never had."""
    try:
        whole = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        return
    found: list[Span] | None = None
    with suppress(MalformedError):
        found = read_spans("traces", "protobuf", body)
    assert found is not None or any(byte & 7 in (3, 4) for byte in body)
    if found is None:
        return
    spans = [span for group in whole.resource_spans for scope in group.scope_spans for span in scope.spans]
    assert len(found) == len(spans)
