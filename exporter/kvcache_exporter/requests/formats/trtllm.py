"""TensorRT-LLM usage: OpenAI's shape, details only if the server was told to report them, blocks of 32."""

from kvcache_exporter.requests.formats.chat_usage import chat_format, from_provider

TRTLLM = chat_format(
    "trtllm", lambda sample: from_provider(sample, "trtllm", "tensorrt_llm") or "ctx_usage" in sample
)
