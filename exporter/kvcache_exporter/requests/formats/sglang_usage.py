"""SGLang usage: OpenAI's form, cached counts only with --enable-cache-report, pages of one token.

Details are null without the flag, and up to 0.5.20 also on a miss.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import (
    ChatDetails,
    ChatUsage,
    chat_format,
    choices_of,
    from_provider,
    has_field,
)
from kvcache_exporter.requests.formats.envelope import Envelope
from kvcache_exporter.requests.formats.sglang_request import once


class SglangRow(Envelope, gc=False):
    """One line."""

    choices: msgspec.Raw = msgspec.Raw()


def _unfold(row: SglangRow) -> SglangRow:
    usage = row.usage
    if isinstance(usage, ChatUsage) and isinstance(usage.prompt_tokens_details, ChatDetails):
        cached, prompt = usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens
        if cached is not None and prompt is not None and cached > prompt:
            usage.prompt_tokens_details.cached_tokens = once(prompt, cached, choices_of(row.choices))
    return row


def _looks(sample: Mapping[str, Any]) -> bool:
    return from_provider(sample, "sglang") or "sglext" in sample or has_field(sample, "reasoning_tokens")


SGLANG_USAGE = chat_format("sglang_usage", _looks, provider="sglang", envelope=SglangRow, unfold=_unfold)
