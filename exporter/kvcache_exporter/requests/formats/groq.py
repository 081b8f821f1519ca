"""Groq usage: OpenAI's form, with the server's times in seconds inside the usage object."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import (
    ChatUsage,
    chat_counts,
    from_provider,
    has_chat_usage,
    has_field,
)
from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, measured, row_of
from kvcache_exporter.requests.formats.tiers import by_fields
from kvcache_exporter.requests.formats.values import seconds


class GroqUsage(ChatUsage, gc=False):
    """`usage`."""

    queue_time: Any = None
    prompt_time: Any = None
    total_time: Any = None


class XGroq(msgspec.Struct, gc=False):
    """`x_groq`, which holds the usage in the last event of a stream."""

    usage: GroqUsage | list[Any] | str | float | bool | None = None


class GroqRow(Envelope, gc=False):
    """One line."""

    x_groq: XGroq | list[Any] | str | float | bool | None = None


def _unfold(row: GroqRow) -> GroqRow:
    if isinstance(row.x_groq, XGroq) and not isinstance(row.usage, GroqUsage):
        row.usage = row.x_groq.usage or row.usage
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
    last = sample.get("x_groq")
    if isinstance(last, dict) and isinstance(last.get("usage"), dict):
        return True
    named = from_provider(sample, "groq") or "x_groq" in sample or has_field(sample, "prompt_time")
    return named and has_chat_usage(sample)


GROQ = EnvelopeFormat(
    name="groq",
    row=row_of(GroqUsage, GroqRow),
    usage=GroqUsage,
    counts=chat_counts,
    looks=_looks,
    provider="groq",
    unfold=_unfold,
    tiers=by_fields("service_tier"),
)
