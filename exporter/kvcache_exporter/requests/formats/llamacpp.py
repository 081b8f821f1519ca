"""llama.cpp's replies: `timings` counts cached and computed prompt tokens separately, in every endpoint.

`tokens_cached` of /completion is what the slot holds after the request, not what was read from the cache.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import ChatUsage, chat_counts
from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, measured, row_of
from kvcache_exporter.requests.formats.usual import Counted, as_counted
from kvcache_exporter.requests.formats.values import Tokens, milliseconds


class Timings(msgspec.Struct, gc=False):
    """`timings`; builds up to 2025 have no `cache_n`."""

    cache_n: Tokens = None
    prompt_n: Tokens = None
    prompt_ms: Any = None
    predicted_n: Tokens = None


class LlamaRow(Envelope, gc=False):
    """One reply, or the last chunk of a streamed one."""

    timings: Timings | list[Any] | str | float | bool | None = None
    tokens_evaluated: Tokens = None


def _unfold(row: LlamaRow) -> LlamaRow:
    timings, usage = row.timings, row.usage
    known = chat_counts(usage) if isinstance(usage, ChatUsage) else Counted(None, None)
    if isinstance(timings, Timings) and timings.prompt_n is not None:
        row.usage = _timed(timings, row.tokens_evaluated if known[0] is None else known[0])
        measured(row, milliseconds(timings.prompt_ms))
    elif known[0] is not None:
        row.usage = Counted(*known)
    return row


def _timed(timings: Timings, prompt: int | None) -> Counted:
    """`prompt` is the whole prompt, if something other than the timings reports it."""
    computed, cached = timings.prompt_n or 0, timings.cache_n
    if cached is None and prompt is not None:
        cached = max(prompt - computed, 0)
    return Counted(computed + (cached or 0), cached, None, timings.predicted_n)


def _looks(sample: Mapping[str, Any]) -> bool:
    timings = sample.get("timings")
    return isinstance(timings, dict) and "prompt_n" in timings


LLAMACPP = EnvelopeFormat(
    name="llamacpp",
    row=row_of(ChatUsage, LlamaRow),
    usage=Counted,
    counts=as_counted,
    looks=_looks,
    provider="llamacpp",
    unfold=_unfold,
)
