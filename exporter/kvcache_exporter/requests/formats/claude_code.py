"""Claude Code's session files: a response is several lines with the same `message.id`; the last one counts.

A response is held back until it is known to be complete: at a stop reason, at the next response of the same
conversation, or at the end of an idle file. So no counter ever has to be corrected.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats.anthropic_messages import (
    MessagesUsage,
    message_counts,
    message_tiers,
    take_over,
)
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import LineDecoder, decode_snapshot
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.rows import Loose, foreign
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import label, refusal

MAX_PENDING = 256
"""Responses of one file held back at a time: one per conversation, and few conversations overlap."""
_SYNTHETIC = "<synthetic>"


class ClaudeMessage(msgspec.Struct, gc=False):
    """`message` of a line of type assistant."""

    id: Any = None
    model: Any = None
    stop_reason: Any = None
    usage: MessagesUsage | Loose = None


class ClaudeRow(msgspec.Struct, gc=False, rename="camel"):
    """One line."""

    type: Any = None
    timestamp: Any = None
    uuid: Any = None
    session_id: Any = None
    is_sidechain: Any = None
    agent_id: Any = None
    is_api_error_message: Any = None
    message: ClaudeMessage | Loose = None


class PendingResponse(msgspec.Struct):
    """The last line of a response: names and numbers, never text."""

    usage: MessagesUsage
    conversation: str
    timestamp: float | None = None
    model_name: str = ""
    group: str = ""


_Saved = dict[str, PendingResponse]


class ClaudeCodeDecoder(LineDecoder):
    """Holds responses back that may get more lines."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(ClaudeRow)
        self._seen = options.seen
        self._labels = Labeller(options, "anthropic", UNKNOWN_CONTRACT).labels
        self._group_by = group_reader(options.group_by)
        self._pending: _Saved = {}

    def _take(self, row: ClaudeRow, line: bytes, entries: list[Entry]) -> None:
        message = row.message
        if not isinstance(row.type, str):
            raise foreign("Claude Code's session files")
        if not isinstance(message, ClaudeMessage) or not _is_response(row, message):
            entries.append(Skipped("not_a_request", timestamp=timestamp(row.timestamp)))
            return
        usage = message.usage
        if not isinstance(usage, MessagesUsage):
            raise RecordError("no_usage", "the response has no usage object")
        key = label(message.id) or label(row.uuid)
        conversation = label(row.agent_id) or f"{label(row.session_id)}/{row.is_sidechain is True}"
        if key in self._pending:
            entries.append(Skipped("duplicate"))
        elif key and not self._seen.add("claude_code", key):
            entries.append(Skipped("duplicate"))
            return
        else:
            self._close_conversation(conversation, entries)
        group = row.session_id if self._group_by is None else self._group_by(line)
        self._pending[key] = held = PendingResponse(
            MessagesUsage(), conversation, timestamp(row.timestamp), label(message.model), label(group)
        )
        take_over(usage, held.usage)
        if message.stop_reason or not key:
            entries.append(self._close(key))

    def _close_conversation(self, conversation: str, entries: list[Entry]) -> None:
        """A conversation requests its next response only after the previous one is complete."""
        done = [key for key, held in self._pending.items() if held.conversation == conversation]
        if len(self._pending) - len(done) >= MAX_PENDING:
            done.append(next(key for key in self._pending if key not in done))
        entries.extend(self._close(key) for key in done)

    def _close(self, key: str) -> Entry:
        held = self._pending.pop(key)
        prompt, cached, written, output, by_ttl = message_counts(held.usage)
        if prompt is None:
            return refusal(prompt)
        labels = self._labels(None, held.model_name, held.group)
        provider, model_name, group, granule, minimum = labels
        return RequestRecord(
            prompt, cached, written, output, None, None, held.timestamp, provider, model_name, group, "ok",
            key, by_ttl, granule, minimum, tier=message_tiers((held,))[0],
        )  # fmt: skip

    def flush(self) -> list[Entry]:
        """The responses held back, with the counts of their last lines."""
        return [self._close(key) for key in list(self._pending)]

    def snapshot(self) -> bytes:
        """Ids, names and numbers of the responses held back."""
        return msgspec.json.encode(self._pending) if self._pending else b""

    def restore(self, snapshot: bytes) -> None:
        """Raises StateError if the snapshot is not one of this format."""
        if snapshot:
            self._pending = decode_snapshot(snapshot, _Saved, CLAUDE_CODE.name)


def _is_response(row: ClaudeRow, message: ClaudeMessage) -> bool:
    """Whether a model answered: the client also writes its own error messages in this form."""
    return row.type == "assistant" and row.is_api_error_message is not True and message.model != _SYNTHETIC


_KINDS = frozenset({"user", "assistant", "system", "attachment", "progress", "queue-operation"})


class ClaudeCode:
    """The format."""

    name = "claude_code"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample is a line of a session file."""
        kind, message = sample.get("type"), sample.get("message")
        if kind == "summary":
            return "leafUuid" in sample
        if kind == "assistant" and isinstance(message, dict) and "usage" in message:
            return True
        return isinstance(kind, str) and kind in _KINDS and "sessionId" in sample

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds responses back until they are complete."""
        return ClaudeCodeDecoder(options)


CLAUDE_CODE = ClaudeCode()
