"""NVIDIA Dynamo's agent trace: `request_end` events with the router's measurements, all optional."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.rows import Loose, Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import Tokens, milliseconds


class TraceRequest(msgspec.Struct, gc=False):
    """`event.request`."""

    request_id: Any = None
    model: Any = None
    input_tokens: Tokens = None
    cached_tokens: Tokens = None
    output_tokens: Tokens = None
    ttft_ms: Any = None
    total_time_ms: Any = None


class AgentContext(msgspec.Struct, gc=False):
    """`event.agent_context`."""

    session_type_id: Any = None


class TraceEvent(msgspec.Struct, gc=False):
    """`event`."""

    event_type: Any = None
    event_time_unix_ms: Any = None
    agent_context: AgentContext | Loose = None
    request: TraceRequest | Loose = None


class TraceRow(msgspec.Struct, gc=False):
    """One line; its own timestamp is relative to the trace's start."""

    event: TraceEvent | Loose = None


def _read(row: TraceRow) -> Reading:
    event = row.event
    if not isinstance(event, TraceEvent) or event.event_type is None:
        raise foreign("Dynamo's agent trace")
    at, request = timestamp(event.event_time_unix_ms), event.request
    if event.event_type != "request_end" or not isinstance(request, TraceRequest):
        return Reading(at=at, skip="not_a_request")
    context = event.agent_context
    return Reading(
        prompt=request.input_tokens,
        cached=request.cached_tokens,
        output=request.output_tokens,
        ttft=milliseconds(request.ttft_ms),
        duration=milliseconds(request.total_time_ms),
        at=at,
        model=request.model,
        group=context.session_type_id if isinstance(context, AgentContext) else None,
        request_id=request.request_id,
    )


def _looks(sample: Mapping[str, Any]) -> bool:
    event = sample.get("event")
    return isinstance(event, dict) and str(event.get("schema")).startswith("dynamo.")


DYNAMO_AGENT_TRACE = RowFormat("dynamo_agent_trace", TraceRow, _read, _looks, provider="dynamo")
