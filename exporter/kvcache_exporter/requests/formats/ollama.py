"""Ollama's replies: no cached count; the prompt count may be missing if the prompt was still loaded."""

from collections.abc import Mapping
from typing import Any

from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, measured
from kvcache_exporter.requests.formats.usual import Counted, as_counted
from kvcache_exporter.requests.formats.values import Tokens, seconds

_CHUNK = "chat.completion.chunk"


class OllamaRow(Envelope, gc=False):
    """One reply, or one chunk of a streamed one; durations in nanoseconds."""

    created_at: Any = None
    done: Any = None
    total_duration: Any = None
    load_duration: Any = None
    prompt_eval_count: Tokens = None
    prompt_eval_duration: Any = None
    eval_count: Tokens = None


def _unfold(row: OllamaRow) -> OllamaRow:
    row.created = row.created_at
    if row.done is False:
        row.object = _CHUNK
    elif row.done is True:
        load, evaluated = seconds(row.load_duration, 1e9), seconds(row.prompt_eval_duration, 1e9)
        ttft = None if evaluated is None else (load or 0.0) + evaluated
        measured(row, ttft, seconds(row.total_duration, 1e9))
        counted = row.prompt_eval_count is not None
        row.usage = Counted(row.prompt_eval_count, None, None, row.eval_count) if counted else None
        row.status = 200 if row.status is None else row.status
    return row


def _looks(sample: Mapping[str, Any]) -> bool:
    return isinstance(sample.get("done"), bool) and "created_at" in sample and "model" in sample


OLLAMA = EnvelopeFormat(
    name="ollama",
    row=OllamaRow,
    usage=Counted,
    counts=as_counted,
    looks=_looks,
    provider="ollama",
    unfold=_unfold,
)
