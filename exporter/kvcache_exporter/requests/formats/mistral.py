"""Mistral usage: the cached count, if any, is in the details or in `num_cached_tokens`."""

from kvcache_exporter.requests.formats.chat_usage import chat_format, chat_usage, from_provider, has_field

MISTRAL = chat_format(
    "mistral",
    lambda sample: from_provider(sample, "mistral", "mistralai") or has_field(sample, "num_cached_tokens"),
    usage=chat_usage(hits="num_cached_tokens"),
)
