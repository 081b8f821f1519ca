"""Turns OpenTelemetry spans of model calls into request records.

Names are those of the GenAI semantic conventions, of their earlier versions, and of vLLM and SGLang.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvcache_exporter.model import Skipped
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import Template
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.rows import Reading
from kvcache_exporter.requests.formats.statuses import failure_of_text
from kvcache_exporter.requests.formats.tiers import tier
from kvcache_exporter.requests.formats.values import label, seconds, token

PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cache_read_tokens",
    "gen_ai.usage.cached_tokens",
)
WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_creation_tokens",
    "gen_ai.usage.cache_write_tokens",
)
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
TTFT = ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token")
"""Seconds."""
DURATION = ("gen_ai.latency.e2e",)
MODEL = ("gen_ai.response.model", "gen_ai.request.model")
PROVIDER = ("gen_ai.provider.name", "gen_ai.system")
REQUEST_ID = ("gen_ai.response.id", "gen_ai.request.id")
TIER = ("openai.response.service_tier", "gen_ai.openai.response.service_tier")
OPERATION = "gen_ai.operation.name"
STREAM = "gen_ai.request.stream"
KIND = "llm.request.type"
ERROR = "error.type"
_NAMES = frozenset(
    (*PROMPT, *CACHED, *WRITTEN, *OUTPUT, *TTFT, *DURATION, *MODEL, *PROVIDER, *REQUEST_ID, *TIER)
) | {OPERATION, STREAM, KIND, ERROR}
_OPERATIONS = frozenset({"chat", "text_completion", "generate_content", "completion", "responses"})
"""Operations that are a single model call; agents and workflows repeat the sums of their calls."""
_ERROR = 2
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Span:
    """One finished span; attribute values are strings, numbers, bools, lists or mappings."""

    attributes: Mapping[str, Any]
    resource: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the resource that emitted it."""
    scope: str = ""
    """Name of the instrumentation."""
    start_nanoseconds: int = 0
    """Since the epoch; 0 if the span has no start."""
    end_nanoseconds: int = 0
    status_code: int = 0
    """0 unset, 1 ok, 2 error."""
    span_id: str = ""
    """In hexadecimal, like `trace_id`; a log record has the ids of the span it was written in."""
    trace_id: str = ""


class SpanReader:
    """Turns spans into entries, with labels by the source's options."""

    def __init__(self, options: DecoderOptions) -> None:
        self._labels = Labeller(options, "", UNKNOWN_CONTRACT).labels
        self._template = Template(options.group_by or "service.name")
        self.wanted = _NAMES.union(self._template.fields)
        """The attributes that are read. Decoders of spans drop all others, so that no prompt is kept."""

    def entry(self, span: Span) -> Entry:
        """The record of a model call, else Skipped. Raises RecordError for impossible counts."""
        at = span.start_nanoseconds / _NANOSECONDS or None
        found = span.attributes
        prompt = token(_first(found, PROMPT))
        if not _is_model_call(found, has_usage=prompt is not None):
            return Skipped("not_a_request", timestamp=at)
        reading = _reading(span, at)
        _add_counts(reading, prompt, token(_first(found, CACHED)), token(_first(found, WRITTEN)))
        return reading.entry(self._labels(reading.provider, reading.model, self._group(span)))

    def _group(self, span: Span) -> Any:
        return self._template.fill({**span.resource, **span.attributes}.get)


def _is_model_call(found: Mapping[str, Any], *, has_usage: bool) -> bool:
    operation = found.get(OPERATION)
    if operation is None:
        return has_usage and found.get(KIND) not in ("embedding", "rerank")
    return isinstance(operation, str) and operation in _OPERATIONS


def _reading(span: Span, at: float | None) -> Reading:
    found = span.attributes
    error = found.get(ERROR)
    failed = span.status_code == _ERROR or error is not None
    streamed = found.get(STREAM) is not False
    return Reading(
        output=token(_first(found, OUTPUT)),
        ttft=seconds(_first(found, TTFT)) if streamed else None,
        duration=_duration(span),
        at=at,
        provider=label(_first(found, PROVIDER)) or _engine(span.scope),
        model=_first(found, MODEL),
        request_id=_first(found, REQUEST_ID) or span.span_id,
        tier=tier(_first(found, TIER)),
        skip=failure_of_text(error) if failed else "",
        status="error" if failed else None,
    )


def _add_counts(reading: Reading, prompt: int | None, cached: int | None, written: int | None) -> None:
    extra = (cached or 0) + (written or 0)
    if prompt is not None and extra > prompt:
        # By the conventions the input includes them; this emitter passes on the provider's disjoint counts.
        prompt += extra
    reading.prompt, reading.cached, reading.written = prompt, cached, written


def _duration(span: Span) -> float | None:
    measured = seconds(_first(span.attributes, DURATION))
    if measured is not None or not 0 < span.start_nanoseconds <= span.end_nanoseconds:
        return measured
    return seconds((span.end_nanoseconds - span.start_nanoseconds) / _NANOSECONDS)


def _engine(scope: str) -> str:
    """The engines' spans have no provider; their scopes start with the engine's name."""
    name = scope.replace(".", " ").partition(" ")[0]
    return name if name in ("vllm", "sglang") else ""


def _first(found: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((found[name] for name in names if found.get(name) is not None), None)
