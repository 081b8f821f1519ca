"""SGLang usage: OpenAI's shape, cached counts only with --enable-cache-report, pages of one token."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.envelope import Counts, Envelope, EnvelopeFormat
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.openai_chat import has_chat_usage
from kvcache_exporter.requests.formats.values import Tokens


class SglangDetails(msgspec.Struct, gc=False):
    """`usage.prompt_tokens_details`; null without the flag, and up to 0.5.20 also on a miss."""

    cached_tokens: Tokens = None


class SglangUsage(msgspec.Struct, gc=False):
    """`usage`."""

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    prompt_tokens_details: SglangDetails | list[Any] | str | float | bool | None = None


class SglangRow(Envelope, gc=False):
    """One line."""

    usage: SglangUsage | list[Any] | str | float | bool | msgspec.UnsetType | None = msgspec.UNSET


def _counts(usage: SglangUsage) -> Counts:
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if isinstance(details, SglangDetails) else None
    return usage.prompt_tokens, cached, None, usage.completion_tokens, ()


def _looks(sample: Mapping[str, Any]) -> bool:
    return has_chat_usage(sample) and (
        sample.get("provider") == "sglang" or "sglext" in sample or "reasoning_tokens" in sample["usage"]
    )


SGLANG_USAGE = EnvelopeFormat(
    name="sglang_usage",
    row=SglangRow,
    usage=SglangUsage,
    counts=_counts,
    looks=_looks,
    provider="sglang",
    contract=provider_caching("sglang"),
)
