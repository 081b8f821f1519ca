"""vLLM usage: OpenAI's shape, cached counts only with --enable-prompt-tokens-details, blocks of 16 tokens."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.envelope import Counts, Envelope, EnvelopeFormat
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.openai_chat import has_chat_usage
from kvcache_exporter.requests.formats.values import Tokens

_BLOCK = provider_caching("vllm").granule


class VllmDetails(msgspec.Struct, gc=False):
    """`usage.prompt_tokens_details`; null without the flag, and up to 0.23 also on a miss."""

    cached_tokens: Tokens = None
    created_cache_tokens: Tokens = None


class VllmUsage(msgspec.Struct, gc=False):
    """`usage`."""

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    prompt_tokens_details: VllmDetails | list[Any] | str | float | bool | None = None


class VllmRow(Envelope, gc=False):
    """One line."""

    usage: VllmUsage | list[Any] | str | float | bool | msgspec.UnsetType | None = msgspec.UNSET


def _counts(usage: VllmUsage) -> Counts:
    prompt, details = usage.prompt_tokens, usage.prompt_tokens_details
    if not isinstance(details, VllmDetails):
        return prompt, None, None, usage.completion_tokens, ()
    cached = details.cached_tokens
    if cached and cached % _BLOCK and prompt == cached + 1:
        # The decode side of a disaggregated pair reports all but one token for every request, cold ones too;
        # no cache of whole blocks can hold that.
        cached = None
    return prompt, cached, details.created_cache_tokens, usage.completion_tokens, ()


def _looks(sample: Mapping[str, Any]) -> bool:
    if not has_chat_usage(sample):
        return False
    details = sample["usage"].get("prompt_tokens_details")
    return (
        sample.get("provider") in ("vllm", "hosted_vllm")
        or "kv_transfer_params" in sample
        or (isinstance(details, dict) and "created_cache_tokens" in details)
    )


VLLM = EnvelopeFormat(
    name="vllm",
    row=VllmRow,
    usage=VllmUsage,
    counts=_counts,
    looks=_looks,
    provider="vllm",
    contract=provider_caching("vllm"),
)
