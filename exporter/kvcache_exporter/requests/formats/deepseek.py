"""DeepSeek usage: the cached count stands beside the totals, in newer replies also in the details.

DeepSeek's cache costs nothing to fill: what missed it is no write.
"""

from kvcache_exporter.requests.formats.chat_usage import chat_format, chat_usage, from_provider, has_field

DEEPSEEK = chat_format(
    "deepseek",
    lambda sample: from_provider(sample, "deepseek") or has_field(sample, "prompt_cache_hit_tokens"),
    usage=chat_usage(hits="prompt_cache_hit_tokens", no_writes=0),
)
