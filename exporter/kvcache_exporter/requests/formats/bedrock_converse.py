"""Bedrock Converse usage: `inputTokens` leaves out what was read from and written to the cache.

One family is different: for OpenAI's models `inputTokens` includes the writes. Their total adds them again,
so that only the model's name shows it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import field

from kvcache_exporter.requests.formats.chat_usage import has_field
from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, measured, row_of
from kvcache_exporter.requests.formats.tiers import tier
from kvcache_exporter.requests.formats.usual import Counted, as_counted, of_two_ttls
from kvcache_exporter.requests.formats.values import Tokens, milliseconds

INCLUSIVE = "openai."
_UNSAID = (None, None, None)


class CacheDetail(msgspec.Struct, gc=False):
    """An element of `usage.cacheDetails`: written tokens of one TTL."""

    ttl: Any = None
    tokens: Tokens = field(default=None, name="inputTokens")


class ConverseUsage(msgspec.Struct, gc=False, rename="camel"):
    """`usage`; some SDKs spell the cache fields with `Count`."""

    input_tokens: Tokens = None
    output_tokens: Tokens = None
    cache_read_input_tokens: Tokens = None
    cache_write_input_tokens: Tokens = None
    cache_read_input_token_count: Tokens = None
    cache_write_input_token_count: Tokens = None
    cache_details: list[CacheDetail] | dict[str, Any] | str | float | bool | None = None


class ConverseMetrics(msgspec.Struct, gc=False):
    """`metrics`."""

    latency: Any = field(default=None, name="latencyMs")


class ConverseEvent(msgspec.Struct, gc=False):
    """`metadata`: the last event of a stream."""

    usage: ConverseUsage | list[Any] | str | float | bool | None = None
    metrics: ConverseMetrics | list[Any] | str | float | bool | None = None


class ConverseTier(msgspec.Struct, gc=False):
    """`serviceTier`."""

    type: Any = None


class ConversePerformance(msgspec.Struct, gc=False):
    """`performanceConfig`."""

    latency: Any = None


class Invocation(msgspec.Struct, gc=False, rename="camel"):
    """`amazon-bedrock-invocationMetrics` of the last event of InvokeModelWithResponseStream."""

    input_token_count: Tokens = None
    output_token_count: Tokens = None
    cache_read_input_token_count: Tokens = None
    cache_write_input_token_count: Tokens = None
    first_byte_latency: Any = None
    invocation_latency: Any = None


class ConverseRow(Envelope, gc=False):
    """One line: a body, an envelope, or the last event of a stream."""

    metrics: ConverseMetrics | list[Any] | str | float | bool | None = None
    metadata: ConverseEvent | list[Any] | str | float | bool | None = None
    model_id: Any = field(default=None, name="modelId")
    tier: ConverseTier | list[Any] | str | float | bool | None = field(default=None, name="serviceTier")
    performance: ConversePerformance | list[Any] | str | float | bool | None = field(
        default=None, name="performanceConfig"
    )
    invocation: Invocation | list[Any] | str | float | bool | None = field(
        default=None, name="amazon-bedrock-invocationMetrics"
    )


def _unfold(row: ConverseRow) -> ConverseRow:
    row.model = row.model or row.model_id
    if isinstance(row.invocation, Invocation):
        return _invoked(row, row.invocation)
    usage, metrics = row.usage, row.metrics
    if isinstance(row.metadata, ConverseEvent) and not isinstance(usage, ConverseUsage):
        usage, metrics = row.metadata.usage, row.metadata.metrics
    if row.latency_ms is None and isinstance(metrics, ConverseMetrics):
        measured(row, None, milliseconds(metrics.latency))
    if isinstance(usage, ConverseUsage):
        row.usage = _counted(usage, row.model)
    return row


def _invoked(row: ConverseRow, metrics: Invocation) -> ConverseRow:
    measured(row, milliseconds(metrics.first_byte_latency), milliseconds(metrics.invocation_latency))
    usage = ConverseUsage(
        input_tokens=metrics.input_token_count,
        output_tokens=metrics.output_token_count,
        cache_read_input_tokens=metrics.cache_read_input_token_count,
        cache_write_input_tokens=metrics.cache_write_input_token_count,
    )
    row.type, row.usage = None, _counted(usage, row.model)
    return row


def _tiers(rows: Sequence[Any]) -> Sequence[str]:
    found = [(row.service_tier, row.tier, row.performance) for row in rows]
    if found.count(_UNSAID) == len(found):
        return [""] * len(found)
    return [
        tier(
            named,
            own.type if isinstance(own, ConverseTier) else own,
            performance.latency if isinstance(performance, ConversePerformance) else None,
        )
        for named, own, performance in found
    ]


def _counted(usage: ConverseUsage, model: object) -> Counted:
    fresh, read, written = usage.input_tokens, usage.cache_read_input_tokens, usage.cache_write_input_tokens
    read = usage.cache_read_input_token_count if read is None else read
    written = usage.cache_write_input_token_count if written is None else written
    cache = (read or 0) + (written or 0)
    if fresh is None and not cache:
        return Counted(None, None)
    prompt = fresh or 0
    inclusive = isinstance(model, str) and INCLUSIVE in model
    if not inclusive or prompt < cache:
        prompt += cache
    if read is None and written is not None:
        read = 0
    by_ttl = _split(usage.cache_details, written) if written else ()
    return Counted(prompt, read, written, usage.output_tokens, by_ttl)


def _split(details: object, written: int) -> tuple[tuple[str, int], ...]:
    """Written tokens by TTL; those missing from the details have the default of 5 minutes."""
    short = long = 0
    for detail in details if isinstance(details, list) else ():
        if detail.ttl == "5m":
            short += detail.tokens or 0
        elif detail.ttl == "1h":
            long += detail.tokens or 0
    return of_two_ttls(written, long if short + long <= written else 0)


def _looks(sample: Mapping[str, Any]) -> bool:
    metadata = sample.get("metadata")
    if isinstance(sample.get("amazon-bedrock-invocationMetrics"), dict):
        return "type" not in sample  # with a type it is the end of Anthropic's event stream
    return has_field(sample, "inputTokens") or (
        isinstance(metadata, dict) and has_field(metadata, "inputTokens")
    )


BEDROCK_CONVERSE = EnvelopeFormat(
    name="bedrock_converse",
    row=row_of(ConverseUsage, ConverseRow),
    usage=Counted,
    counts=as_counted,
    looks=_looks,
    provider="bedrock",
    unfold=_unfold,
    tiers=_tiers,
)
