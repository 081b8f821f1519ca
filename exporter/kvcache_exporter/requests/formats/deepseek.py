"""DeepSeek usage: the cached count is beside the totals, in newer replies also in the details.

Filling DeepSeek's cache is free: misses are not counted as writes.
"""

from kvcache_exporter.requests.formats.chat_usage import chat_format, chat_usage, from_provider, has_field

DEEPSEEK = chat_format(
    "deepseek",
    lambda sample: from_provider(sample, "deepseek") or has_field(sample, "prompt_cache_hit_tokens"),
    usage=chat_usage(hits="prompt_cache_hit_tokens", no_writes=0),
)
