"""OTLP messages in protobuf and JSON: decodes exports to spans, and encodes responses.

Only the wanted attributes are ever decoded to Python values.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Signal
from kvcache_exporter.requests.formats.otlp_traces import JsonResourceSpans, spans
from kvcache_exporter.requests.formats.rows import Loose
from kvcache_exporter.requests.formats.spans import Span
from kvcache_exporter.requests.formats.values import label
from kvcache_exporter.requests.otlp.errors import MalformedError, TooManyError
from kvcache_exporter.requests.otlp.wire import Walk

Encoding = Literal["protobuf", "json"]
_MAX_DEPTH = 8
_MOST_VALUES = 64
"""Nesting of lists and mappings in an attribute's value."""
MOST_ITEMS = 50_000
"""Spans or log records in one export."""
_MOST_FIELDS = 4 * MOST_ITEMS
"""Fields of the message that are walked: resources, scopes and items."""
MOST_ITEM_BYTES = 1 << 20
"""Size of one resource or scope in protobuf."""
_JSON_OBJECTS, _BYTES_PER_OBJECT = 100_000, 16
"""Real exports take 25 bytes and more for each object or list."""
Item = Span | RecordError


class JsonExport(msgspec.Struct, gc=False, rename="camel"):
    """The body of an export in JSON."""

    resource_spans: list[JsonResourceSpans | Loose] | None = None
    resource_logs: list[JsonResourceSpans | Loose] | None = None


_decode_json = msgspec.json.Decoder(JsonExport).decode


def read(signal: Signal, encoding: Encoding, body: bytes, wanted: Collection[str]) -> list[Item]:
    """Spans, or log records as spans; an item that cannot be read is an error in its place.

    Raises MalformedError; TooManyError for more than MOST_ITEMS, or for millions of tiny objects, which would
    take far more memory than the body's size.
    """
    try:
        items = (
            _from_json(signal, body, wanted) if encoding == "json" else _from_protobuf(signal, body, wanted)
        )
        found = list(islice(items, MOST_ITEMS + 1))
    except (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, MalformedError) as error:
        raise MalformedError(f"the body is no export of {signal} in {encoding}") from error
    if len(found) > MOST_ITEMS:
        raise TooManyError(f"it holds more than {MOST_ITEMS} items")
    return found


def answer(signal: Signal, encoding: Encoding, rejected: int, message: str) -> bytes:
    """The body of a 200 response: `rejected` items were not used, and `message` says why."""
    if encoding == "json":
        count = {"rejectedSpans" if signal == "traces" else "rejectedLogRecords": str(rejected)}
        partial = {"partialSuccess": {**count, "errorMessage": message}} if rejected else {}
        return msgspec.json.encode(partial)
    if not rejected:
        return b""  # an empty message
    if signal == "traces":
        spans_left_out = trace_pb.ExportTracePartialSuccess(rejected_spans=rejected, error_message=message)
        return trace_pb.ExportTraceServiceResponse(partial_success=spans_left_out).SerializeToString()
    logs_left_out = logs_pb.ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=message)
    return logs_pb.ExportLogsServiceResponse(partial_success=logs_left_out).SerializeToString()


def refusal(encoding: Encoding, message: str) -> bytes:
    """The body of a 4xx or 5xx response: a google.rpc.Status with `message` as its second field."""
    if encoding == "json":
        return msgspec.json.encode({"message": message})
    # google.rpc.Status would need another package; OTLP's Status has a text as its second field, too.
    return trace_pb.ExportTracePartialSuccess(error_message=message).SerializeToString()


def _from_json(signal: Signal, body: bytes, wanted: Collection[str]) -> Iterator[Item]:
    if body.count(b"{") + body.count(b"[") > _JSON_OBJECTS + len(body) // _BYTES_PER_OBJECT:
        raise TooManyError("it is made of too many small objects")
    export = _decode_json(body)
    yield from spans(export.resource_spans if signal == "traces" else export.resource_logs, wanted)


def _from_protobuf(signal: Signal, body: bytes, wanted: Collection[str]) -> Iterator[Item]:
    """Decodes one item at a time: protobuf makes objects of small fields that take 90 times their size."""
    walk = Walk(_MOST_FIELDS)
    for group in walk.embedded(memoryview(body), 1):
        about = dict[str, Any]()
        for resource in walk.embedded(group, 1):
            about = _attributes(Resource.FromString(_checked(resource)).attributes, wanted)
        for scoped in walk.embedded(group, 2):
            scope = "".join(_scope_name(found) for found in walk.embedded(scoped, 1))
            for item in walk.embedded(scoped, 2):
                yield _item(signal, item, about, scope, wanted)


def _item(
    signal: Signal, item: memoryview, about: Mapping[str, Any], scope: str, wanted: Collection[str]
) -> Item:
    if len(item) > MOST_ITEM_BYTES:
        return RecordError("too_long", f"larger than {MOST_ITEM_BYTES} bytes")
    if signal == "traces":
        return _span(ProtoSpan.FromString(item.tobytes()), about, scope, wanted)
    return _log_record(LogRecord.FromString(item.tobytes()), about, scope, wanted)


def _scope_name(scope: memoryview) -> str:
    return InstrumentationScope.FromString(_checked(scope)).name


def _checked(about: memoryview) -> bytes:
    if len(about) > MOST_ITEM_BYTES:
        raise TooManyError(f"a resource or scope is larger than {MOST_ITEM_BYTES} bytes")
    return about.tobytes()


def _span(span: ProtoSpan, about: Mapping[str, Any], scope: str, wanted: Collection[str]) -> Span:
    return Span(
        attributes=_attributes(span.attributes, wanted),
        resource=about,
        scope=label(scope),
        start_nanoseconds=span.start_time_unix_nano,
        end_nanoseconds=span.end_time_unix_nano,
        status_code=span.status.code,
        span_id=span.span_id[:8].hex(),
        trace_id=span.trace_id[:16].hex(),
    )


def _log_record(record: LogRecord, about: Mapping[str, Any], scope: str, wanted: Collection[str]) -> Span:
    return Span(
        attributes=_attributes(record.attributes, wanted),
        resource=about,
        scope=label(scope),
        start_nanoseconds=record.time_unix_nano or record.observed_time_unix_nano,
        span_id=record.span_id[:8].hex(),
        trace_id=record.trace_id[:16].hex(),
    )


def _attributes(pairs: Iterable[KeyValue], wanted: Collection[str]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if pair.key in wanted}


def _value(value: AnyValue, depth: int = 0) -> Any:
    kind = value.WhichOneof("value")
    if kind in {"string_value", "int_value", "double_value", "bool_value"}:
        return getattr(value, kind)
    if kind == "array_value" and depth < _MAX_DEPTH:
        return [_value(item, depth + 1) for item in value.array_value.values[:_MOST_VALUES]]
    if kind == "kvlist_value" and depth < _MAX_DEPTH:
        return {p.key: _value(p.value, depth + 1) for p in value.kvlist_value.values[:_MOST_VALUES]}
    return None
