"""OpenAI Chat Completions usage: `prompt_tokens` includes what was read from and written to the cache."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.envelope import Counts, Envelope, EnvelopeFormat
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.values import Tokens


class ChatDetails(msgspec.Struct, gc=False):
    """`usage.prompt_tokens_details`."""

    cached_tokens: Tokens = None
    cache_write_tokens: Tokens = None


class ChatUsage(msgspec.Struct, gc=False):
    """`usage`."""

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    prompt_tokens_details: ChatDetails | list[Any] | str | float | bool | None = None


class ChatRow(Envelope, gc=False):
    """One line."""

    usage: ChatUsage | list[Any] | str | float | bool | msgspec.UnsetType | None = msgspec.UNSET


def _counts(usage: ChatUsage) -> Counts:
    details = usage.prompt_tokens_details
    if not isinstance(details, ChatDetails):
        return usage.prompt_tokens, None, None, usage.completion_tokens, ()
    return (
        usage.prompt_tokens,
        details.cached_tokens,
        details.cache_write_tokens or 0,
        usage.completion_tokens,
        (),
    )


def has_chat_usage(sample: Mapping[str, Any]) -> bool:
    """Whether the entry has a usage object in the form of the Chat Completions API."""
    usage = sample.get("usage")
    return isinstance(usage, dict) and "prompt_tokens" in usage


OPENAI_CHAT = EnvelopeFormat(
    name="openai_chat",
    row=ChatRow,
    usage=ChatUsage,
    counts=_counts,
    looks=has_chat_usage,
    provider="openai",
    contract=provider_caching("openai"),
)
