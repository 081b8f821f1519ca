"""vLLM usage: OpenAI's form, cached counts only with --enable-prompt-tokens-details, blocks of 16 tokens.

Details are null without the flag, and up to 0.23 also on a miss.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import (
    ChatUsage,
    chat_counts,
    chat_format,
    chat_usage,
    choices_of,
    from_provider,
)
from kvcache_exporter.requests.formats.envelope import Envelope, measured
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.usual import Counts
from kvcache_exporter.requests.formats.values import milliseconds
from kvcache_exporter.requests.outcome import cached_by_blocks

_BLOCK = provider_caching("vllm").granule


class VllmMetrics(msgspec.Struct, gc=False):
    """`metrics` (--enable-per-request-metrics, from 0.25), in milliseconds."""

    queue_time_ms: Any = None
    time_to_first_token_ms: Any = None
    """Measured from scheduling, so without the queue."""
    generation_time_ms: Any = None


class VllmRow(Envelope, gc=False):
    """One line."""

    metrics: VllmMetrics | list[Any] | str | float | bool | None = None
    choices: msgspec.Raw = msgspec.Raw()


def _unfold(row: VllmRow) -> VllmRow:
    if isinstance(row.metrics, VllmMetrics):
        queued, first, generating = map(
            milliseconds,
            (row.metrics.queue_time_ms, row.metrics.time_to_first_token_ms, row.metrics.generation_time_ms),
        )
        if queued is not None and first is not None:
            ttft = queued + first
            measured(row, ttft, None if generating is None else ttft + generating)
    if row.object == "text_completion" and isinstance(row.usage, ChatUsage) and choices_of(row.choices) > 1:
        # With several prompts in a request, the cached count is that of the last prompt only.
        row.usage.prompt_tokens_details = None
    return row


def _counts(usage: ChatUsage) -> Counts:
    prompt, cached, written, output, by_ttl = chat_counts(usage)
    if prompt is not None and cached is not None:
        cached = cached_by_blocks(prompt, cached, _BLOCK)
    return prompt, cached, written, output, by_ttl


def _looks(sample: Mapping[str, Any]) -> bool:
    details = sample["usage"].get("prompt_tokens_details")
    return (
        from_provider(sample, "vllm", "hosted_vllm")
        or "kv_transfer_params" in sample
        or (isinstance(details, dict) and "created_cache_tokens" in details)
    )


VLLM = chat_format(
    "vllm",
    _looks,
    usage=chat_usage(writes="created_cache_tokens"),
    counts=_counts,
    envelope=VllmRow,
    unfold=_unfold,
)
