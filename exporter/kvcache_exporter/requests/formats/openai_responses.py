"""Usage of OpenAI's Responses and Realtime APIs: bodies, envelopes and the final events of responses."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.openai_chat import OutputDetails
from kvcache_exporter.requests.formats.tiers import AUDIO, by_fields, with_word
from kvcache_exporter.requests.formats.usual import Counts
from kvcache_exporter.requests.formats.values import Tokens

_FINAL_EVENTS = (
    "response.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
)
"""A tuple, as below: membership in a set would fail for unhashable values."""


_DETAILS = ("input_tokens_details", "input_token_details")


class WriteDetails(msgspec.Struct, gc=False):
    """`usage.input_tokens_details.cache_write_tokens_details`."""

    ttl_30m_tokens: Tokens = None
    ttl_12h_tokens: Tokens = None


class InputDetails(msgspec.Struct, gc=False):
    """`usage.input_tokens_details`; Realtime spells it `input_token_details`."""

    cached_tokens: Tokens = None
    audio_tokens: Tokens = None
    cache_write_tokens: Tokens = None
    cache_write_tokens_details: WriteDetails | list[Any] | str | float | bool | None = None


class ResponsesUsage(msgspec.Struct, gc=False):
    """`usage`."""

    input_tokens: Tokens = None
    input_tokens_details: InputDetails | list[Any] | str | float | bool | None = None
    input_token_details: InputDetails | list[Any] | str | float | bool | None = None
    output_tokens: Tokens = None
    output_token_details: OutputDetails | list[Any] | str | float | bool | None = None
    cache_read_input_tokens: Any = None
    """Never OpenAI's: with these fields `input_tokens` is not the whole prompt."""
    cache_creation_input_tokens: Any = None


class Body(Envelope, gc=False):
    """An envelope, or a response as the API gives it."""

    created_at: Any = None
    usage: ResponsesUsage | list[Any] | str | float | bool | msgspec.UnsetType | None = msgspec.UNSET


class ResponsesRow(Body, gc=False):
    """One line, which may be an event that contains the response."""

    response: Body | list[Any] | str | float | bool | None = None


def _unfold(row: ResponsesRow) -> Body:
    body: Body = row
    if row.type in _FINAL_EVENTS and isinstance(row.response, Body):
        body = row.response
        for name in ("ts", "request_id", "provider", "route", "group", "ttft_ms", "latency_ms"):
            if getattr(row, name) is not None:
                setattr(body, name, getattr(row, name))
    body.created = body.created or body.created_at
    if body.object == "realtime.response" and body.status == "cancelled" and body.usage is not None:
        body.status = "interrupted"  # the user spoke: the reply up to then counts and is billed
    return body


def _counts(usage: ResponsesUsage) -> Counts:
    details = _details(usage)
    if usage.cache_read_input_tokens is not None or usage.cache_creation_input_tokens is not None:
        return None, None, None, usage.output_tokens, ()
    if not isinstance(details, InputDetails):
        return usage.input_tokens, None, None, usage.output_tokens, ()
    written, split = details.cache_write_tokens or 0, details.cache_write_tokens_details
    by_ttl: tuple[tuple[str, int], ...] = ()
    if written and isinstance(split, WriteDetails):
        by_ttl = tuple(
            (ttl, tokens)
            for ttl, tokens in (("30m", split.ttl_30m_tokens), ("12h", split.ttl_12h_tokens))
            if tokens
        )
    return usage.input_tokens, details.cached_tokens, written, usage.output_tokens, by_ttl


def _details(usage: ResponsesUsage) -> object:
    return usage.input_token_details if usage.input_tokens_details is None else usage.input_tokens_details


def _tiers(rows: Sequence[Any]) -> Sequence[str]:
    heard = [
        (isinstance(before := _details(row.usage), InputDetails) and before.audio_tokens)
        or (isinstance(after := row.usage.output_token_details, OutputDetails) and after.audio_tokens)
        for row in rows
    ]
    return with_word(AUDIO, heard, _service_tiers(rows))


_service_tiers = by_fields("service_tier")


def _looks(sample: Mapping[str, Any]) -> bool:
    kind, usage = sample.get("type"), sample.get("usage")
    return (
        sample.get("object") == "response"
        or (isinstance(kind, str) and kind.startswith("response."))
        or (isinstance(usage, dict) and not usage.keys().isdisjoint(_DETAILS))
    )


OPENAI_RESPONSES = EnvelopeFormat(
    name="openai_responses",
    row=ResponsesRow,
    usage=ResponsesUsage,
    counts=_counts,
    looks=_looks,
    provider="openai",
    unfold=_unfold,
    tiers=_tiers,
    contract=provider_caching("openai"),
)
