"""OpenAI Chat Completions usage: `prompt_tokens` includes what was read from and written to the cache."""

from kvcache_exporter.requests.formats.chat_usage import chat_format, chat_usage

OPENAI_CHAT = chat_format(
    "openai_chat",
    lambda _sample: True,
    provider="openai",
    usage=chat_usage(writes="cache_write_tokens", no_writes=0),
)
