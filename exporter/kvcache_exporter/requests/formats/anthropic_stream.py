"""Anthropic's server-sent events, one per line; events of different requests may be interleaved.

The usage in `message_delta` is cumulative and repeats that of `message_start`: for each field the last value
that is not null counts, never the sum.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats.anthropic_messages import (
    Diagnostics,
    MessagesUsage,
    diagnosis,
    message_counts,
    message_tiers,
    take_over,
)
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.envelope import is_event
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import LineDecoder, decode_snapshot
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.statuses import failure_of_error
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import label, milliseconds, refusal

_USAGE_EVENTS = ("message_start", "message_delta", "message_stop")
_TEXT_EVENTS = ("content_block_delta", "content_block_start", "content_block_stop")
"""Nearly all lines, the most frequent first."""
MAX_PENDING = 10_000
_BEDROCK = "msg_bdrk_"
"""Prefix of the ids of messages served by Amazon Bedrock."""
_MAX_FINISHED = 1_000
"""Ended streams that are remembered, so that late events are not taken for another request."""


class StreamMessage(msgspec.Struct, gc=False):
    """`message` of message_start."""

    id: Any = None
    model: Any = None
    diagnostics: Diagnostics | list[Any] | str | float | bool | None = None
    usage: MessagesUsage | list[Any] | str | float | bool | None = None


class StreamDelta(msgspec.Struct, gc=False):
    """`delta` of message_delta; other events have other deltas under the same name."""

    stop_reason: Any = None


class Invocation(msgspec.Struct, gc=False, rename="camel"):
    """What Amazon Bedrock adds to message_stop, in milliseconds."""

    first_byte_latency: Any = None
    invocation_latency: Any = None


class EventType(msgspec.Struct, gc=False):
    """All that matters of an event of text."""

    type: Any = None


class StreamRow(msgspec.Struct, gc=False):
    """One event."""

    ts: Any = None
    request_id: Any = None
    type: Any = None
    provider: Any = None
    model: Any = None
    route: Any = None
    group: Any = None
    message: StreamMessage | list[Any] | str | float | bool | None = None
    invocation: Invocation | list[Any] | str | float | bool | None = msgspec.field(
        default=None, name="amazon-bedrock-invocationMetrics"
    )
    delta: StreamDelta | list[Any] | str | float | bool | None = None
    usage: MessagesUsage | list[Any] | str | float | bool | None = None
    error: Any = None


class Pending(msgspec.Struct):
    """What is known of a request whose stream has not ended: names and numbers, never text."""

    usage: MessagesUsage
    timestamp: float | None = None
    provider: str = ""
    model_name: str = ""
    group: str = ""
    diagnosis: tuple[str, int] | None = None
    ttft: float | None = None
    """Reported by Amazon Bedrock only, like the duration."""
    duration: float | None = None
    stopped: bool = False
    """Whether everything is known except what message_stop may add."""
    by_bedrock: bool = False


class Saved(msgspec.Struct):
    """What the state file keeps."""

    pending: dict[str, Pending] = {}
    finished: list[str] = []
    latest: str = ""


class StreamDecoder(LineDecoder):
    """Holds back the requests whose streams have not ended."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(EventType)
        self._decode_event = msgspec.json.Decoder(StreamRow, strict=False).decode
        self._labels = Labeller(options, "anthropic", UNKNOWN_CONTRACT).labels
        self._group_by = group_reader(options.group_by)
        self._pending: dict[str, Pending] = {}
        self._finished: dict[str, None] = {}
        self._latest = ""
        """The request that started last; events without an id belong to it."""

    def _take(self, event: EventType, line: bytes, entries: list[Entry]) -> None:
        if event.type in _TEXT_EVENTS:
            return
        row = self._decode_event(line)
        if row.type == "error":
            self._fail(row, entries)
        elif row.type in _USAGE_EVENTS:
            self._follow(row, line, entries)
        elif not is_event(row.type):
            raise RecordError("no_usage", "the line is not an event of a stream")

    def _follow(self, row: StreamRow, line: bytes, entries: list[Entry]) -> None:
        key = self._key(row)
        if key in self._finished:
            return
        usage = row.message.usage if isinstance(row.message, StreamMessage) else row.usage
        if isinstance(usage, MessagesUsage):
            self._update(self._open(key, entries), row, usage, line)
        known = self._pending.get(key)
        if known is None:
            return
        if isinstance(row.invocation, Invocation):
            known.ttft = milliseconds(row.invocation.first_byte_latency)
            known.duration = milliseconds(row.invocation.invocation_latency)
        known.stopped |= isinstance(row.delta, StreamDelta) and bool(row.delta.stop_reason)
        if row.type == "message_stop" or (known.stopped and not known.by_bedrock):
            entries.append(self._close(key, "ok"))

    def _key(self, row: StreamRow) -> str:
        message = row.message if isinstance(row.message, StreamMessage) else None
        key = label(row.request_id) or (label(message.id) if message else "")
        if row.type == "message_start":
            self._latest = key
            if not key:
                self._finished.pop(key, None)
        return key or self._latest

    def _open(self, key: str, entries: list[Entry]) -> Pending:
        if key not in self._pending:
            if len(self._pending) >= MAX_PENDING:
                entries.append(self._close(next(iter(self._pending)), "truncated"))
            self._pending[key] = Pending(MessagesUsage())
        return self._pending[key]

    def _update(self, known: Pending, row: StreamRow, usage: MessagesUsage, line: bytes) -> None:
        take_over(usage, known.usage)
        group = (row.route or row.group) if self._group_by is None else self._group_by(line)
        if isinstance(row.message, StreamMessage):
            known.model_name = known.model_name or label(row.message.model)
            known.by_bedrock |= label(row.message.id).startswith(_BEDROCK)
            known.diagnosis = known.diagnosis or diagnosis(row.message.diagnostics)
        known.model_name = known.model_name or label(row.model)
        known.provider = known.provider or label(row.provider)
        known.group = known.group or label(group)
        if known.timestamp is None:
            known.timestamp = timestamp(row.ts)

    def _close(self, key: str, status: str) -> Entry:
        known = self._pending.pop(key)
        self._remember(key)
        prompt, cached, written, output, by_ttl = message_counts(known.usage)
        if prompt is None:
            return refusal(prompt)
        labels = self._labels(known.provider, known.model_name, known.group)
        provider, model_name, group, granule, minimum = labels
        return RequestRecord(
            prompt, cached, written, output, known.ttft, known.duration, known.timestamp, provider,
            model_name, group, status, key, by_ttl, granule, minimum, known.diagnosis,
            message_tiers((known,))[0],
        )  # fmt: skip

    def _fail(self, row: StreamRow, entries: list[Entry]) -> None:
        key = self._key(row)
        known = self._pending.pop(key, None) or Pending(MessagesUsage(), timestamp(row.ts))
        self._remember(key)
        labels = self._labels(known.provider, known.model_name, known.group)
        reason = failure_of_error(row.error)
        entries.append(Skipped(reason, "error", *labels[:3], timestamp=known.timestamp))

    def _remember(self, key: str) -> None:
        self._finished[key] = None
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]

    def flush(self) -> list[Entry]:
        """The requests whose streams broke off: their input is complete, their output a lower bound."""
        held = list(self._pending.items())
        return [self._close(key, "ok" if known.stopped else "truncated") for key, known in held]

    def snapshot(self) -> bytes:
        """Ids, names and numbers of the pending requests."""
        if not self._pending and not self._finished:
            return b""
        return msgspec.json.encode(Saved(self._pending, list(self._finished), self._latest))

    def restore(self, snapshot: bytes) -> None:
        """Raises StateError if the snapshot is not one of this format."""
        if snapshot:
            saved = decode_snapshot(snapshot, Saved, ANTHROPIC_STREAM.name)
            self._pending, self._latest = saved.pending, saved.latest
            self._finished = dict.fromkeys(saved.finished)


class AnthropicStream:
    """The format."""

    name = "anthropic_stream"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample is an event of a streamed message."""
        kind = sample.get("type")
        return isinstance(kind, str) and kind.startswith(("message_", "content_block_"))

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds requests back until their stream ends."""
        return StreamDecoder(options)


ANTHROPIC_STREAM = AnthropicStream()
