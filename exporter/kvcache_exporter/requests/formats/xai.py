"""xAI usage: OpenAI's form, or the names of its gRPC API; reasoning is not in `completion_tokens`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import (
    ChatUsage,
    chat_counts,
    chat_format,
    from_provider,
    has_field,
)
from kvcache_exporter.requests.formats.usual import Counts
from kvcache_exporter.requests.formats.values import Tokens


class OutputDetails(msgspec.Struct, gc=False):
    """`usage.completion_tokens_details`."""

    reasoning_tokens: Tokens = None


class XaiUsage(ChatUsage, gc=False):
    """`usage`."""

    hits: Tokens = msgspec.field(default=None, name="cached_prompt_text_tokens")  # type: ignore[misc]
    reasoning_tokens: Tokens = None
    total_tokens: Tokens = None
    completion_tokens_details: OutputDetails | list[Any] | str | float | bool | None = None


def _counts(usage: XaiUsage) -> Counts:
    prompt, cached, written, output, by_ttl = chat_counts(usage)
    reasoning, details = usage.reasoning_tokens, usage.completion_tokens_details
    if reasoning is None and isinstance(details, OutputDetails):
        reasoning = details.reasoning_tokens
    if prompt is not None and output is not None and reasoning:
        # Models differ in whether reasoning is included; only the total shows it.
        output += reasoning if usage.total_tokens == prompt + output + reasoning else 0
    return prompt, cached, written, output, by_ttl


def _looks(sample: Mapping[str, Any]) -> bool:
    return from_provider(sample, "xai", "x_ai") or has_field(
        sample, "cached_prompt_text_tokens", "cost_in_usd_ticks", "num_sources_used"
    )


XAI = chat_format("xai", _looks, usage=XaiUsage, counts=_counts)
