"""OpenRouter usage: OpenAI's form for every model, Claude included; and answers of /generation."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import (
    ChatDetails,
    chat_counts,
    chat_usage,
    from_provider,
    has_field,
)
from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, measured, row_of
from kvcache_exporter.requests.formats.tiers import by_fields
from kvcache_exporter.requests.formats.values import Tokens, milliseconds


class Generation(msgspec.Struct, gc=False):
    """`data`. Its `tokens_prompt` comes from another tokenizer, so that it cannot form a ratio."""

    id: Any = None
    model: Any = None
    created_at: Any = None
    cancelled: Any = None
    latency: Any = None
    """Milliseconds to the first token, according to users; the guide does not define it."""
    native_tokens_prompt: Tokens = None
    native_tokens_cached: Tokens = None
    native_tokens_completion: Tokens = None


class OpenrouterRow(Envelope, gc=False):
    """One line: a body, an envelope, or an answer of /generation."""

    data: Generation | list[Any] | str | float | bool | None = None


_USAGE = chat_usage(writes="cache_write_tokens")


def _unfold(row: OpenrouterRow) -> OpenrouterRow:
    generation = row.data
    if not isinstance(generation, Generation) or generation.native_tokens_prompt is None:
        return row
    row.id, row.model, row.created = generation.id, generation.model, generation.created_at
    row.status = "cancelled" if generation.cancelled is True else row.status
    measured(row, milliseconds(generation.latency))
    row.usage = _USAGE(
        generation.native_tokens_prompt,
        generation.native_tokens_completion,
        ChatDetails(generation.native_tokens_cached),
    )
    return row


def _looks(sample: Mapping[str, Any]) -> bool:
    data = sample.get("data")
    if isinstance(data, dict) and "native_tokens_prompt" in data:
        return True
    named = from_provider(sample, "openrouter") or has_field(sample, "is_byok", "cost_details")
    return named and has_field(sample, "prompt_tokens")


OPENROUTER = EnvelopeFormat(
    name="openrouter",
    row=row_of(_USAGE, OpenrouterRow),
    usage=_USAGE,
    counts=chat_counts,
    looks=_looks,
    provider="openrouter",
    unfold=_unfold,
    tiers=by_fields("service_tier"),
)
