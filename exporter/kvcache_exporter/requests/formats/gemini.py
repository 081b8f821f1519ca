"""Gemini usage of the Gemini API, Vertex AI and the Interactions API, in camel case or as SDKs dump it.

An absent cached count is 0, since JSON made from protobuf omits zeros. Thoughts are output; tokens that tools
add to the prompt are not in the prompt count and never cached. Explicit caches are created by separate calls.
"""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import msgspec
from msgspec import field

from kvcache_exporter.requests.formats.chat_usage import has_field
from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, row_of
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.tiers import AUDIO, tier, with_word
from kvcache_exporter.requests.formats.usual import Counts
from kvcache_exporter.requests.formats.values import Tokens, first, label

Anything = list[Any] | str | float | bool | None


class Modality(msgspec.Struct, gc=False):
    """An element of `promptTokensDetails`."""

    modality: Any = None


Modalities = list[Modality | Anything] | dict[str, Any] | str | float | bool | None


class GeminiUsage(msgspec.Struct, gc=False):
    """`usageMetadata`, or `usage` of an Interaction."""

    prompt: Tokens = field(default=None, name="promptTokenCount")
    cached: Tokens = field(default=None, name="cachedContentTokenCount")
    candidates: Tokens = field(default=None, name="candidatesTokenCount")
    thoughts: Tokens = field(default=None, name="thoughtsTokenCount")
    prompt_token_count: Tokens = None
    cached_content_token_count: Tokens = None
    candidates_token_count: Tokens = None
    thoughts_token_count: Tokens = None
    total_input_tokens: Tokens = None
    total_cached_tokens: Tokens = None
    total_output_tokens: Tokens = None
    total_thought_tokens: Tokens = None
    traffic_camel: Any = field(default=None, name="trafficType")
    traffic_type: Any = None
    details_camel: Modalities = field(default=None, name="promptTokensDetails")
    prompt_tokens_details: Modalities = None
    input_tokens_by_modality: Modalities = None


class Candidate(msgspec.Struct, gc=False):
    """An element of `candidates`."""

    content: msgspec.Raw = msgspec.Raw()
    finish_camel: Any = field(default=None, name="finishReason")
    finish_reason: Any = None


Candidates = list[Candidate | Anything] | dict[str, Any] | str | float | bool | None
_Usage = GeminiUsage | list[Any] | str | float | bool | None


class GeminiRow(Envelope, gc=False):
    """One line: a body, an envelope, or a bare usage object of an Interaction."""

    usage_camel: _Usage = field(default=None, name="usageMetadata")
    usage_metadata: _Usage = None
    model_camel: Any = field(default=None, name="modelVersion")
    model_version: Any = None
    id_camel: Any = field(default=None, name="responseId")
    response_id: Any = None
    created_camel: Any = field(default=None, name="createTime")
    create_time: Any = None
    candidates: Candidates = None
    total_input_tokens: Tokens = None
    total_cached_tokens: Tokens = None
    total_output_tokens: Tokens = None
    total_thought_tokens: Tokens = None


def _unfold(row: GeminiRow) -> GeminiRow:
    row.model = row.model or row.model_camel or row.model_version
    row.id = row.id or row.id_camel or row.response_id
    row.created = row.created or row.created_camel or row.create_time
    if not isinstance(row.usage, GeminiUsage):
        metadata = row.usage_camel or row.usage_metadata
        if metadata is not None:
            row.usage = metadata
        elif row.total_input_tokens is not None:
            row.usage = GeminiUsage(
                prompt=row.total_input_tokens,
                cached=row.total_cached_tokens,
                candidates=row.total_output_tokens,
                thoughts=row.total_thought_tokens,
            )
    if row.candidates is not None and _goes_on(row.candidates):
        row.object, row.usage = "chat.completion.chunk", msgspec.UNSET
    return row


def _goes_on(candidates: object) -> bool:
    """Whether this is an event within a stream: each repeats the counts, and only the last is complete."""
    found = [c for c in candidates if isinstance(c, Candidate)] if isinstance(candidates, list) else []
    return any(bytes(c.content) for c in found) and not any(c.finish_camel or c.finish_reason for c in found)


def gemini_tiers(rows: Sequence[Any]) -> Sequence[str]:
    """The kind of traffic, and whether sound went in."""
    usages = [row.usage for row in rows]
    told = [(u.traffic_camel, u.traffic_type, row.service_tier) for u, row in zip(usages, rows, strict=True)]
    kinds = [tier(*told[0])] * len(told) if told.count(told[0]) == len(told) else list(starmap(tier, told))
    parts = [u.details_camel or u.prompt_tokens_details or u.input_tokens_by_modality for u in usages]
    return with_word(AUDIO, list(map(_has_sound, parts)), kinds) if any(parts) else kinds


def _has_sound(parts: object) -> bool:
    return isinstance(parts, list) and any(map(_is_audio, parts))


def _is_audio(part: object) -> bool:
    return isinstance(part, Modality) and label(part.modality).upper() == "AUDIO"


def gemini_counts(usage: GeminiUsage) -> Counts:
    """The counts; what is written to the cache stands in no reply."""
    prompt = first(usage.prompt, usage.prompt_token_count, usage.total_input_tokens)
    cached = first(usage.cached, usage.cached_content_token_count, usage.total_cached_tokens)
    spoken = first(usage.candidates, usage.candidates_token_count, usage.total_output_tokens)
    thought = first(usage.thoughts, usage.thoughts_token_count, usage.total_thought_tokens)
    output = None if spoken is None and thought is None else (spoken or 0) + (thought or 0)
    return prompt, cached or 0, None, output, ()


def _looks(sample: Mapping[str, Any]) -> bool:
    return (
        isinstance(sample.get("usageMetadata"), dict)
        or isinstance(sample.get("usage_metadata"), dict)
        or has_field(sample, "promptTokenCount", "prompt_token_count", "total_input_tokens")
        or ("total_input_tokens" in sample and "total_cached_tokens" in sample)
    )


GEMINI = EnvelopeFormat(
    name="gemini",
    row=row_of(GeminiUsage, GeminiRow),
    usage=GeminiUsage,
    counts=gemini_counts,
    looks=_looks,
    provider="gemini",
    unfold=_unfold,
    tiers=gemini_tiers,
    contract=provider_caching("gemini"),
)
