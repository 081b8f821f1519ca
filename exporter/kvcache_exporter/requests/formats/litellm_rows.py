"""Rows of LiteLLM's logs, and where in them the counts of tokens are."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import field

from kvcache_exporter.requests.formats.anthropic_messages import CacheCreation
from kvcache_exporter.requests.formats.values import Milliseconds, Tokens


class LiteDetails(msgspec.Struct, gc=False):
    """`prompt_tokens_details` of a usage object."""

    cached_tokens: Tokens = None
    cache_creation_tokens: Tokens = None
    cache_write_tokens: Tokens = None
    cache_creation_token_details: CacheCreation | list[Any] | str | float | bool | None = None


class LiteUsage(msgspec.Struct, gc=False):
    """A usage object."""

    completion_tokens: Tokens = None
    prompt_tokens: Tokens = None
    prompt_tokens_details: LiteDetails | list[Any] | str | float | bool | None = None
    cache_creation_input_tokens: Tokens = None
    cache_read_input_tokens: Tokens = None
    service_tier: Any = None
    speed: Any = None
    inference_geo: Any = None


class LiteBasis(msgspec.Struct, gc=False):
    """`cost_breakdown`; only what determined the prices is read."""

    service_tier: Any = None
    data_residency: Any = None
    vertex_location: Any = None


class LiteHolder(msgspec.Struct, gc=False):
    """`metadata` or `hidden_params`: both may hold the usage object."""

    additional_usage_values: LiteUsage | list[Any] | str | float | bool | None = None
    usage_object: LiteUsage | list[Any] | str | float | bool | None = None


class LiteRow(msgspec.Struct, gc=False):
    """One payload or spend log row."""

    id: Any = None
    request_id: Any = None
    stream: Any = None
    call_type: Any = None
    cost_breakdown: LiteBasis | list[Any] | str | float | bool | None = None
    status: Any = None
    custom_llm_provider: Any = None
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    start: Any = field(default=None, name="startTime")
    end: Any = field(default=None, name="endTime")
    first_token: Any = field(default=None, name="completionStartTime")
    request_duration_ms: Milliseconds = None
    model: Any = None
    model_group: Any = None
    metadata: LiteHolder | list[Any] | str | float | bool | None = None
    cache_hit: Any = None
    request_tags: Any = None
    error_str: Any = None
    error_information: Any = None
    hidden_params: msgspec.Raw = msgspec.Raw()


_holder: Callable[[Any], LiteHolder] = msgspec.json.Decoder(LiteHolder, strict=False).decode
_NO_USAGE = LiteUsage()


def usage_of(row: LiteRow) -> LiteUsage:
    """The usage object, wherever this version of LiteLLM keeps it; may be a string in SQL dumps."""
    holder = row.metadata
    if isinstance(holder, str):
        try:
            holder = _holder(holder)
        except (msgspec.DecodeError, RecursionError):
            holder = None
    if isinstance(holder, LiteHolder):
        for usage in (holder.usage_object, holder.additional_usage_values):
            if isinstance(usage, LiteUsage):
                return usage
    hidden = bytes(row.hidden_params)
    if hidden[:1] == b"{":
        usage = _holder(hidden).usage_object
        if isinstance(usage, LiteUsage):
            return usage
    return _NO_USAGE


def cache_counts(usage: LiteUsage) -> tuple[int | None, int | None, object]:
    """Cached and written tokens, None if no field has them, and the split of the latter."""
    cached, written, details = (
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
        usage.prompt_tokens_details,
    )
    if not isinstance(details, LiteDetails):
        return cached, written, None
    if details.cached_tokens is not None and (cached is None or details.cached_tokens > cached):
        # If both are there, one may be a stale 0 (streams that LiteLLM passes through).
        cached = details.cached_tokens
    if written is None:
        written = details.cache_creation_tokens or details.cache_write_tokens or 0
    return cached, written, details.cache_creation_token_details
