"""TensorRT-LLM usage: OpenAI's form, details only if the server is configured to report them, blocks of 32.

With separate workers for prefill and decode the reply is of the decode worker, and `ctx_usage` has the cached
count of the prefill worker.
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
