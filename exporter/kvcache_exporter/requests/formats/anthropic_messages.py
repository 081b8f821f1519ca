"""Anthropic Messages usage: `input_tokens` leaves out what was read from and written to the cache."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.envelope import Counts, EnvelopeFormat, row_of
from kvcache_exporter.requests.formats.values import Tokens


class CacheCreation(msgspec.Struct, gc=False):
    """`usage.cache_creation`."""

    ephemeral_5m_input_tokens: Tokens = None
    ephemeral_1h_input_tokens: Tokens = None


class MessagesUsage(msgspec.Struct, gc=False):
    """`usage`."""

    input_tokens: Tokens = None
    cache_creation_input_tokens: Tokens = None
    cache_read_input_tokens: Tokens = None
    cache_creation: CacheCreation | list[Any] | str | float | bool | None = None
    output_tokens: Tokens = None
    input_tokens_details: Any = None
    """Never Anthropic's: with details, `input_tokens` is the whole prompt."""
    prompt_tokens_details: Any = None


def message_counts(usage: MessagesUsage) -> Counts:
    """The counts of a whole message; cache fields that are null or absent are 0, as Anthropic documents."""
    fresh, output = usage.input_tokens, usage.output_tokens
    if usage.input_tokens_details is not None or usage.prompt_tokens_details is not None:
        return None, None, None, output, ()
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    if fresh is None and not read and not written:
        return None, None, None, output, ()
    prompt = (fresh or 0) + read + written
    if not prompt:
        return 0, None, None, output, ()
    return prompt, read, written, output, split_by_ttl(usage.cache_creation, written) if written else ()


def split_by_ttl(split: object, written: int) -> tuple[tuple[str, int], ...]:
    """Written tokens by TTL; what the log does not split has the default of 5 minutes."""
    if not isinstance(split, CacheCreation):
        return (("5m", written),)
    pairs = (("5m", split.ephemeral_5m_input_tokens), ("1h", split.ephemeral_1h_input_tokens))
    return tuple((ttl, tokens) for ttl, tokens in pairs if tokens) or (("5m", written),)


def _looks(sample: Mapping[str, Any]) -> bool:
    usage = sample.get("usage")
    return isinstance(usage, dict) and (
        "cache_read_input_tokens" in usage
        or "cache_creation_input_tokens" in usage
        or (sample.get("type") == "message" and "input_tokens" in usage)
    ) and "prompt_tokens" not in usage  # fmt: skip


ANTHROPIC_MESSAGES = EnvelopeFormat(
    name="anthropic_messages",
    row=row_of(MessagesUsage),
    usage=MessagesUsage,
    counts=message_counts,
    looks=_looks,
    provider="anthropic",
)
