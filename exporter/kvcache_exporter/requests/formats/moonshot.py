"""Moonshot (Kimi) usage: the cached count is beside the totals, in newer replies also in the details."""

from collections.abc import Mapping
from typing import Any

from kvcache_exporter.requests.formats.chat_usage import chat_format, chat_usage, from_provider, has_field

_NAMES = ("moonshot", "moonshotai", "kimi")


def _looks(sample: Mapping[str, Any]) -> bool:
    model = sample.get("model")
    kimi = isinstance(model, str) and model.startswith(("kimi-", "moonshot-"))
    return from_provider(sample, *_NAMES) or (kimi and has_field(sample, "cached_tokens"))


MOONSHOT = chat_format("moonshot", _looks, usage=chat_usage(hits="cached_tokens"))
