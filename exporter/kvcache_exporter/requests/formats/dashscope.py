"""DashScope (Qwen) usage: totals named as OpenAI's, or `input_tokens` with the same meaning.

Explicit caching bills writes; they have Anthropic's names but are in OpenAI's details.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.anthropic_messages import CacheCreation, split_by_ttl
from kvcache_exporter.requests.formats.chat_usage import ChatDetails, from_provider
from kvcache_exporter.requests.formats.envelope import EnvelopeFormat, row_of
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.tiers import EXPLICIT_CACHE
from kvcache_exporter.requests.formats.usual import Counts
from kvcache_exporter.requests.formats.values import Tokens


class DashscopeDetails(ChatDetails, gc=False):
    """`usage.prompt_tokens_details`."""

    cache_creation_input_tokens: Tokens = None
    cache_creation: CacheCreation | list[Any] | str | float | bool | None = None
    cache_type: Any = None
    """`ephemeral` if the request asked for caching."""


class DashscopeUsage(msgspec.Struct, gc=False):
    """`usage`."""

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    input_tokens: Tokens = None
    output_tokens: Tokens = None
    prompt_tokens_details: DashscopeDetails | list[Any] | str | float | bool | None = None
    input_tokens_details: DashscopeDetails | list[Any] | str | float | bool | None = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None


def _counts(usage: DashscopeUsage) -> Counts:
    prompt = usage.input_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    output = usage.output_tokens if usage.completion_tokens is None else usage.completion_tokens
    details = _details(usage)
    if usage.cache_read_input_tokens is not None or usage.cache_creation_input_tokens is not None:
        prompt = usage.prompt_tokens  # Anthropic-compatible endpoint: `input_tokens` is not the whole prompt
    if not isinstance(details, DashscopeDetails):
        return prompt, None, None, output, ()
    written = details.cache_creation_input_tokens or 0
    by_ttl = split_by_ttl(details.cache_creation, written) if written else ()
    return prompt, details.cached_tokens, written, output, by_ttl


def _details(usage: DashscopeUsage) -> object:
    """The details; the Responses endpoint has another name for them."""
    return usage.input_tokens_details if usage.prompt_tokens_details is None else usage.prompt_tokens_details


def _tiers(rows: Sequence[Any]) -> Sequence[str]:
    """Reads of explicitly cached tokens have another price than those of implicitly cached ones."""
    return [EXPLICIT_CACHE if _is_explicit(_details(row.usage)) else "" for row in rows]


def _is_explicit(details: object) -> bool:
    return isinstance(details, DashscopeDetails) and details.cache_type == "ephemeral"


def _looks(sample: Mapping[str, Any]) -> bool:
    usage = sample.get("usage")
    if not isinstance(usage, dict) or usage.keys().isdisjoint(("prompt_tokens", "input_tokens")):
        return False
    details = usage.get("prompt_tokens_details")
    telling = ("cache_type", "cache_creation_input_tokens")
    named = from_provider(sample, "dashscope", "qwen", "alibaba") and "cache_read_input_tokens" not in usage
    return named or (isinstance(details, dict) and not details.keys().isdisjoint(telling))


DASHSCOPE = EnvelopeFormat(
    name="dashscope",
    row=row_of(DashscopeUsage),
    usage=DashscopeUsage,
    counts=_counts,
    looks=_looks,
    provider="dashscope",
    tiers=_tiers,
    contract=provider_caching("dashscope"),
)
