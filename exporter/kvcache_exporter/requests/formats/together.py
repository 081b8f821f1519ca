"""Together usage: three totals, for some models with the cached count beside them."""

from kvcache_exporter.requests.formats.chat_usage import chat_format, chat_usage, from_provider, has_field

TOGETHER = chat_format(
    "together",
    lambda sample: from_provider(sample, "together", "together_ai") or has_field(sample, "cached_tokens"),
    usage=chat_usage(hits="cached_tokens"),
)
