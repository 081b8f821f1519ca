"""Amazon Bedrock's model invocation log: input tokens exclude cache reads and writes.

For OpenAI's models they are those of Converse, and are treated in the same way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.anthropic_messages import CacheCreation, split_by_ttl
from kvcache_exporter.requests.formats.bedrock_converse import INCLUSIVE
from kvcache_exporter.requests.formats.lines import FAILURES
from kvcache_exporter.requests.formats.rows import Loose, Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.statuses import failure_of_text
from kvcache_exporter.requests.formats.values import Tokens, label, milliseconds


class LogInput(msgspec.Struct, gc=False, rename="camel"):
    """`input`."""

    input_token_count: Tokens = None
    cache_read_input_token_count: Tokens = None
    cache_write_input_token_count: Tokens = None


class LogOutput(msgspec.Struct, gc=False, rename="camel"):
    """`output`; the body is an object, an array of events, or not there because it went to S3."""

    output_token_count: Tokens = None
    output_body_json: msgspec.Raw = msgspec.Raw()


class Metadata(msgspec.Struct, gc=False):
    """`requestMetadata`, set by the caller."""

    route: Any = None


class InvocationRow(msgspec.Struct, gc=False, rename="camel"):
    """One line."""

    schema_type: Any = None
    timestamp: Any = None
    request_id: Any = None
    operation: Any = None
    model_id: Any = None
    error_code: Any = None
    request_metadata: Metadata | Loose = None
    input: LogInput | Loose = None
    output: LogOutput | Loose = None


class Detail(msgspec.Struct, gc=False, rename="camel"):
    """One of Converse's `usage.cacheDetails`."""

    ttl: Any = None
    input_tokens: Tokens = None


class BodyUsage(msgspec.Struct, gc=False):
    """`usage`: Converse's and Anthropic's keys."""

    converse_read: Tokens = msgspec.field(default=None, name="cacheReadInputTokens")
    converse_written: Tokens = msgspec.field(default=None, name="cacheWriteInputTokens")
    details: list[Detail] | str | float | bool | dict[str, Any] | None = msgspec.field(
        default=None, name="cacheDetails"
    )
    cache_read_input_tokens: Tokens = None
    cache_creation_input_tokens: Tokens = None
    cache_creation: CacheCreation | Loose = None


class Metrics(msgspec.Struct, gc=False, rename="camel"):
    """Converse's `metrics`, and those that the last event of InvokeModelWithResponseStream carries (ms)."""

    latency_ms: Any = None
    invocation_latency: Any = None
    first_byte_latency: Any = None
    cache_read_input_token_count: Tokens = None
    cache_write_input_token_count: Tokens = None


class Message(msgspec.Struct, gc=False):
    """`message` of Anthropic's message_start."""

    usage: BodyUsage | Loose = None


class Body(msgspec.Struct, gc=False):
    """A response body, or one event of a streamed one; the text in it is not decoded."""

    usage: BodyUsage | Loose = None
    metrics: Metrics | Loose = None
    message: Message | Loose = None
    invocation: Metrics | Loose = msgspec.field(default=None, name="amazon-bedrock-invocationMetrics")


_body = msgspec.json.Decoder(Body | list[Body], strict=False).decode
_NO_INPUT, _NO_OUTPUT = LogInput(), LogOutput()


def _read(row: InvocationRow) -> Reading:
    if row.schema_type != "ModelInvocationLog" and (row.model_id is None or row.operation is None):
        raise foreign("Bedrock's invocation log")
    given = row.input if isinstance(row.input, LogInput) else _NO_INPUT
    taken = row.output if isinstance(row.output, LogOutput) else _NO_OUTPUT
    bodies = _bodies(taken.output_body_json)
    usages = _usages(bodies)
    told = [given, *(body.invocation for body in bodies if isinstance(body.invocation, Metrics)), *usages]
    read = _first(told, "cache_read_input_token_count", "converse_read", "cache_read_input_tokens")
    written = _first(told, "cache_write_input_token_count", "converse_written", "cache_creation_input_tokens")
    fresh, metadata = given.input_token_count, row.request_metadata
    model = label(row.model_id).rpartition("/")[2]
    cache = (read or 0) + (written or 0)
    if fresh is not None and not (INCLUSIVE in model and fresh >= cache):
        fresh += cache
    return Reading(
        prompt=fresh,
        cached=read,
        written=written,
        output=taken.output_token_count,
        written_by_ttl=_split(usages, written) if written else (),
        ttft=_time(bodies, "first_byte_latency"),
        duration=_time(bodies, "latency_ms", "invocation_latency"),
        at=row.timestamp,
        model=model,
        group=metadata.route if isinstance(metadata, Metadata) else None,
        request_id=row.request_id,
        status=row.error_code,
        skip=_skip(row),
    )


def _skip(row: InvocationRow) -> str:
    return failure_of_text(row.error_code) if row.error_code else ""


def _bodies(raw: msgspec.Raw) -> list[Body]:
    try:
        found = _body(raw)
    except FAILURES:
        return []
    return found if isinstance(found, list) else [found]


def _usages(bodies: list[Body]) -> list[BodyUsage]:
    found: list[Any] = [body.usage for body in bodies]
    found += [body.message.usage for body in bodies if isinstance(body.message, Message)]
    return [usage for usage in found if isinstance(usage, BodyUsage)]


def _first(told: Sequence[object], *names: str) -> int | None:
    """The count of the log, else of the body."""
    counts = (getattr(one, name, None) for one in told for name in names)
    return next((count for count in counts if count is not None), None)


def _split(usages: list[BodyUsage], written: int) -> tuple[tuple[str, int], ...]:
    for usage in usages:
        if isinstance(usage.cache_creation, CacheCreation):
            return split_by_ttl(usage.cache_creation, written)
        details = usage.details if isinstance(usage.details, list) else []
        pairs = tuple((d.ttl, d.input_tokens) for d in details if d.ttl in ("5m", "1h") and d.input_tokens)
        if pairs and sum(tokens for _, tokens in pairs) <= written:
            return pairs
    return split_by_ttl(None, written)


def _time(bodies: list[Body], *names: str) -> float | None:
    for body in bodies:
        for metrics in (body.metrics, body.invocation):
            for name in names if isinstance(metrics, Metrics) else ():
                found = milliseconds(getattr(metrics, name))
                if found is not None:
                    return found
    return None


def _looks(sample: Mapping[str, Any]) -> bool:
    return sample.get("schemaType") == "ModelInvocationLog"


BEDROCK_INVOCATION_LOG = RowFormat("bedrock_invocation_log", InvocationRow, _read, _looks, provider="bedrock")
