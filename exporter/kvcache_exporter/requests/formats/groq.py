"""Groq usage: OpenAI's shape, with the server's own times, in seconds, inside the usage object."""

from collections.abc import Mapping
from typing import Any

from kvcache_exporter.requests.formats.chat_usage import ChatUsage, chat_format, from_provider, has_field
from kvcache_exporter.requests.formats.envelope import Envelope, measured
from kvcache_exporter.requests.formats.values import seconds


class GroqUsage(ChatUsage, gc=False):
    """`usage`."""

    queue_time: Any = None
    prompt_time: Any = None
    total_time: Any = None


def _unfold(row: Envelope) -> Envelope:
    if isinstance(row.usage, GroqUsage):
        queued = seconds(row.usage.queue_time) or 0.0
        computed, total = seconds(row.usage.prompt_time), seconds(row.usage.total_time)
        measured(
            row,
            None if computed is None else queued + computed,
            None if total is None else queued + total,
        )
    return row


def _looks(sample: Mapping[str, Any]) -> bool:
    return from_provider(sample, "groq") or "x_groq" in sample or has_field(sample, "prompt_time")


GROQ = chat_format("groq", _looks, usage=GroqUsage, unfold=_unfold)
