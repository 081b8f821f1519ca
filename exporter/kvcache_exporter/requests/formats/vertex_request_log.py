"""Vertex AI's request-response log, as its BigQuery table is exported: Gemini's replies and Claude's.

A reply is an object or its JSON as text; a streamed one is an array, whose last elements have the counts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.anthropic_messages import (
    MessagesUsage,
    message_counts,
    message_tiers,
    take_over,
)
from kvcache_exporter.requests.formats.gemini import GeminiUsage, gemini_counts, gemini_tiers
from kvcache_exporter.requests.formats.rows import Loose, Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.statuses import failure_of_error
from kvcache_exporter.requests.formats.usual import Counts
from kvcache_exporter.requests.formats.values import label

_MOST_NESTED = 4


class VertexMessage(msgspec.Struct, gc=False):
    """`message` of Claude's message_start."""

    usage: MessagesUsage | Loose = None


class VertexReply(msgspec.Struct, gc=False):
    """A reply, or an element of a streamed one; its text is not decoded."""

    gemini: GeminiUsage | Loose = msgspec.field(default=None, name="usageMetadata")
    snake: GeminiUsage | Loose = msgspec.field(default=None, name="usage_metadata")
    usage: MessagesUsage | Loose = None
    message: VertexMessage | Loose = None
    model: Any = None
    version: Any = msgspec.field(default=None, name="modelVersion")
    error: Any = None


Replies = (
    VertexReply
    | list[VertexReply | list[Any] | str | float | bool | None]
    | str
    | float
    | bool
    | msgspec.UnsetType
    | None
)


class VertexRow(msgspec.Struct, gc=False):
    """One row; older tables have `response_payload`, an array of texts."""

    endpoint: Any = None
    deployed_model_id: Any = None
    logging_time: Any = None
    request_id: Any = None
    model: Any = None
    full_response: Replies = msgspec.UNSET
    response_payload: Replies = msgspec.UNSET


class _Billed(msgspec.Struct, gc=False):
    """The fields that the formats' readers of tiers need."""

    usage: Any
    service_tier: Any = None


_found: Callable[[str], Replies] = msgspec.json.Decoder(Replies, strict=False).decode


def _read(row: VertexRow) -> Reading:
    if row.logging_time is None or row.full_response is row.response_payload is msgspec.UNSET:
        raise foreign("Vertex AI's request-response log")
    replies = _replies(row.full_response) or _replies(row.response_payload)
    named = next((r.version or r.model for r in replies if r.version or r.model), None) or row.model
    reading = Reading(
        at=row.logging_time, request_id=row.request_id, model=label(named).rpartition("/")[2] or None
    )
    errors = [reply.error for reply in replies if reply.error]
    gemini = _last(replies)
    if errors:
        reading.skip = failure_of_error(errors[0])
    elif gemini is not None:
        _count(reading, gemini_counts(gemini), gemini_tiers([_Billed(gemini)]))
    elif (claude := _claude(replies)) is not None:
        _count(reading, message_counts(claude), message_tiers([_Billed(claude)]))
    return reading


def _count(reading: Reading, counts: Counts, tiers: Sequence[str]) -> None:
    reading.prompt, reading.cached, reading.written, reading.output, reading.written_by_ttl = counts
    (reading.tier,) = tiers


def _replies(found: object, depth: int = 0) -> list[VertexReply]:
    """Raises msgspec's errors for invalid counts."""
    if isinstance(found, VertexReply):
        return [found]
    if isinstance(found, list):
        return [reply for part in found for reply in _replies(part, depth)]
    if not isinstance(found, str) or depth == _MOST_NESTED or found[:1] not in ("{", "[", '"'):
        return []
    return _replies(_found(found), depth + 1)


def _last(replies: Sequence[VertexReply]) -> GeminiUsage | None:
    """Each event of a stream repeats the prompt's count; the last one is complete."""
    found = [u for reply in replies for u in (reply.gemini, reply.snake) if isinstance(u, GeminiUsage)]
    return found[-1] if found else None


def _claude(replies: Sequence[VertexReply]) -> MessagesUsage | None:
    """A streamed reply spreads its usage over several events."""
    found: list[Any] = []
    for reply in replies:
        found += [reply.message.usage if isinstance(reply.message, VertexMessage) else None, reply.usage]
    usages = [usage for usage in found if isinstance(usage, MessagesUsage)]
    merged = MessagesUsage()
    for usage in usages:
        take_over(usage, merged)
    return merged if usages else None


def _looks(sample: Mapping[str, Any]) -> bool:
    return "logging_time" in sample and ("full_response" in sample or "response_payload" in sample)


VERTEX_REQUEST_LOG = RowFormat("vertex_request_log", VertexRow, _read, _looks, provider="vertex_ai")
