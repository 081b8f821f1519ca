"""TensorRT-LLM usage: OpenAI's shape, details only if the server was told to report them, blocks of 32.

Where one worker computes prompts and another generates, the reply is the second one's, and `ctx_usage` says
what the first one found in its cache.
"""

from typing import Any

from kvcache_exporter.requests.formats.chat_usage import ChatUsage, chat_format, from_provider
from kvcache_exporter.requests.formats.envelope import Envelope


class TrtllmRow(Envelope, gc=False):
    """One line."""

    ctx_usage: ChatUsage | list[Any] | str | float | bool | None = None


def _unfold(row: TrtllmRow) -> TrtllmRow:
    if isinstance(row.ctx_usage, ChatUsage) and isinstance(row.usage, ChatUsage):
        row.usage.prompt_tokens_details = row.ctx_usage.prompt_tokens_details
    return row


TRTLLM = chat_format(
    "trtllm",
    lambda sample: from_provider(sample, "trtllm", "tensorrt_llm") or "ctx_usage" in sample,
    envelope=TrtllmRow,
    unfold=_unfold,
)
