"""Traces in OTLP/JSON, as the collector's file exporter writes them: many spans per line."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.lines import LineDecoder
from kvcache_exporter.requests.formats.rows import Loose, foreign
from kvcache_exporter.requests.formats.spans import Span, SpanReader
from kvcache_exporter.requests.formats.values import label, number

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_MAX_DEPTH = 8
_LATEST = 2**63
_STATUS = {"STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_SCALARS = ("stringValue", "intValue", "doubleValue", "boolValue")


class JsonAttribute(msgspec.Struct, gc=False):
    """A key and its AnyValue."""

    key: Any = None
    value: Any = None


Attributes = list[JsonAttribute | Loose] | str | float | bool | dict[str, Any] | None


class JsonSpan(msgspec.Struct, gc=False, rename="camel"):
    """One span or log record; protobuf's JSON writes 64-bit integers as strings."""

    trace_id: Any = None
    span_id: Any = None
    start_time_unix_nano: Any = None
    end_time_unix_nano: Any = None
    time_unix_nano: Any = None
    """Only of log records, like the observed time."""
    observed_time_unix_nano: Any = None
    attributes: Attributes = None
    status: Any = None


class JsonNamed(msgspec.Struct, gc=False):
    """`resource` (attributes) or `scope` (name)."""

    name: Any = None
    attributes: Attributes = None


Spans = list[JsonSpan | Loose] | str | float | bool | dict[str, Any] | None


class JsonScopeSpans(msgspec.Struct, gc=False, rename="camel"):
    """Spans or log records of one instrumentation scope."""

    scope: JsonNamed | Loose = None
    spans: Spans = None
    log_records: Spans = None


Scopes = list[JsonScopeSpans | Loose] | str | float | bool | dict[str, Any] | None


class JsonResourceSpans(msgspec.Struct, gc=False, rename="camel"):
    """Spans or log records of one resource."""

    resource: JsonNamed | Loose = None
    scope_spans: Scopes = None
    scope_logs: Scopes = None


class OtlpRow(msgspec.Struct, gc=False, rename="camel"):
    """One line."""

    resource_spans: list[JsonResourceSpans | Loose] | str | float | bool | dict[str, Any] | None = None
    resource_metrics: Any = None
    resource_logs: Any = None


class OtlpDecoder(LineDecoder):
    """An entry for each span."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(OtlpRow)
        self._reader = SpanReader(options)

    def _take(self, row: OtlpRow, line: bytes, entries: list[Entry]) -> None:  # noqa: ARG002
        before = len(entries)
        for span in spans(row.resource_spans, self._reader.wanted):
            try:
                entries.append(self._reader.entry(span))
            except RecordError as error:
                entries.append(RecordError(error.reason, str(error)))
        if len(entries) > before:
            return
        if row.resource_spans is None and row.resource_metrics is None and row.resource_logs is None:
            raise foreign("OTLP's JSON")
        entries.append(Skipped("not_a_request"))


def spans(groups: object, wanted: Collection[str]) -> Iterator[Span]:
    """The spans in `resourceSpans`, or the log records in `resourceLogs`, with the wanted attributes only."""
    for group in _structs(groups, JsonResourceSpans):
        resource = group.resource if isinstance(group.resource, JsonNamed) else JsonNamed()
        about = _attributes(resource.attributes, wanted)
        for scoped in (
            *_structs(group.scope_spans, JsonScopeSpans),
            *_structs(group.scope_logs, JsonScopeSpans),
        ):
            scope = scoped.scope if isinstance(scoped.scope, JsonNamed) else JsonNamed()
            for span in (*_structs(scoped.spans, JsonSpan), *_structs(scoped.log_records, JsonSpan)):
                yield _span(span, _attributes(span.attributes, wanted), about, label(scope.name))


def _span(span: JsonSpan, found: Mapping[str, Any], resource: Mapping[str, Any], scope: str) -> Span:
    times = (span.start_time_unix_nano, span.time_unix_nano, span.observed_time_unix_nano)
    return Span(
        attributes=found,
        resource=resource,
        scope=scope,
        start_nanoseconds=next(filter(None, map(_nanoseconds, times)), 0),
        end_nanoseconds=_nanoseconds(span.end_time_unix_nano),
        status_code=_status(span.status),
        span_id=label(span.span_id),
        trace_id=label(span.trace_id),
    )


def _structs(found: object, kind: type[_Struct]) -> Iterator[_Struct]:
    for item in found if isinstance(found, list) else ():
        if isinstance(item, kind):
            yield item


def _attributes(found: object, wanted: Collection[str]) -> dict[str, Any]:
    pairs = _structs(found, JsonAttribute)
    return {
        pair.key: any_value(pair.value) for pair in pairs if isinstance(pair.key, str) and pair.key in wanted
    }


def any_value(value: object, depth: int = 0) -> Any:
    """The plain value of an AnyValue in JSON; None if it is not one."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    for name in _SCALARS:
        if name in value:
            return value[name]
    if isinstance(listed := value.get("arrayValue"), dict):
        items = listed.get("values")
        return [any_value(item, depth + 1) for item in items] if isinstance(items, list) else []
    if isinstance(mapped := value.get("kvlistValue"), dict):
        items = mapped.get("values")
        pairs = [p for p in items if isinstance(p, dict)] if isinstance(items, list) else []
        return {str(p.get("key")): any_value(p.get("value"), depth + 1) for p in pairs}
    return None


def _nanoseconds(value: object) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)  # exact; a float cannot hold nanoseconds
    count = number(value)
    return int(count) if count is not None and 0 <= count < _LATEST else 0


def _status(status: object) -> int:
    code = status.get("code") if isinstance(status, dict) else None
    if isinstance(code, str) and code in _STATUS:
        return _STATUS[code]
    found = number(code)
    return int(found) if found is not None else 0


class OtlpTraces:
    """The format."""

    name = "otlp_traces"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample is a batch of spans."""
        return "resourceSpans" in sample

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return OtlpDecoder(options)


OTLP_TRACES = OtlpTraces()
