"""SGLang usage: OpenAI's shape, cached counts only with --enable-cache-report, pages of one token.

Details are null without the flag, and up to 0.5.20 also on a miss.
"""

from collections.abc import Mapping
from typing import Any

from kvcache_exporter.requests.formats.chat_usage import chat_format, from_provider, has_field


def _looks(sample: Mapping[str, Any]) -> bool:
    return from_provider(sample, "sglang") or "sglext" in sample or has_field(sample, "reasoning_tokens")


SGLANG_USAGE = chat_format("sglang_usage", _looks, provider="sglang")
