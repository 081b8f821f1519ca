"""OTLP's messages, as protobuf or JSON: exports to spans, and answers to bytes.

Only the attributes that are asked for are ever turned into values of Python.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from kvcache_exporter.requests.formats.otlp_traces import JsonResourceSpans, spans
from kvcache_exporter.requests.formats.rows import Loose
from kvcache_exporter.requests.formats.spans import Span
from kvcache_exporter.requests.formats.values import label
from kvcache_exporter.requests.otlp import Signal

Encoding = Literal["protobuf", "json"]
_MAX_DEPTH = 8
_MOST_ITEMS = 64
"""Of a list or a mapping that is an attribute's value."""


class MalformedError(Exception):
    """A body is no export."""


class JsonExport(msgspec.Struct, gc=False, rename="camel"):
    """The body of an export in JSON."""

    resource_spans: list[JsonResourceSpans | Loose] | None = None
    resource_logs: list[JsonResourceSpans | Loose] | None = None


_decode_json = msgspec.json.Decoder(JsonExport).decode


def read(signal: Signal, encoding: Encoding, body: bytes, wanted: Collection[str]) -> list[Span]:
    """Spans, or log records as spans; raises MalformedError."""
    try:
        if encoding == "json":
            export = _decode_json(body)
            return list(spans(export.resource_spans if signal == "traces" else export.resource_logs, wanted))
        return list(_traces(body, wanted) if signal == "traces" else _logs(body, wanted))
    except (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is no export of {signal} in {encoding}") from error


def answer(signal: Signal, encoding: Encoding, rejected: int, message: str) -> bytes:
    """The body of a 200; `rejected` items were not used, and `message` says why."""
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
    """The body of a 4xx or 5xx: a google.rpc.Status, whose `message` is its second field."""
    if encoding == "json":
        return msgspec.json.encode({"message": message})
    # Status is in another package than OTLP's messages; this one has a text as its second field, too.
    return trace_pb.ExportTracePartialSuccess(error_message=message).SerializeToString()


def _traces(body: bytes, wanted: Collection[str]) -> Iterator[Span]:
    for group in trace_pb.ExportTraceServiceRequest.FromString(body).resource_spans:
        about = _attributes(group.resource.attributes, wanted)
        for scoped in group.scope_spans:
            for span in scoped.spans:
                yield _span(span, about, scoped.scope.name, wanted)


def _logs(body: bytes, wanted: Collection[str]) -> Iterator[Span]:
    for group in logs_pb.ExportLogsServiceRequest.FromString(body).resource_logs:
        about = _attributes(group.resource.attributes, wanted)
        for scoped in group.scope_logs:
            for record in scoped.log_records:
                yield _log_record(record, about, scoped.scope.name, wanted)


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
        return [_value(item, depth + 1) for item in value.array_value.values[:_MOST_ITEMS]]
    if kind == "kvlist_value" and depth < _MAX_DEPTH:
        return {p.key: _value(p.value, depth + 1) for p in value.kvlist_value.values[:_MOST_ITEMS]}
    return None
