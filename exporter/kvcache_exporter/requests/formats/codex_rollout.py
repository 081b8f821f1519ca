"""Codex's session files: token counts of each request, with the model some lines earlier.

A count is repeated when only the rate limits changed; its cumulative total then stays the same. Newer
versions (seen in 0.153) also write a record for each response; from the first one on only these count.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.model import Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import LineDecoder, decode_snapshot
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.rows import Loose, Reading, foreign
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import Tokens, label


class LastUsage(msgspec.Struct, gc=False):
    """`last_token_usage`: one request, cached and written tokens included in its input."""

    input_tokens: Tokens = None
    cached_input_tokens: Tokens = None
    cache_write_input_tokens: Tokens = None
    output_tokens: Tokens = None


class TotalUsage(msgspec.Struct, gc=False, frozen=True):
    """`total_token_usage`: of the whole session, so it may exceed the limit of a single request."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class TokenInfo(msgspec.Struct, gc=False):
    """`info`; null in lines that only report rate limits."""

    total_token_usage: TotalUsage | Loose = None
    last_token_usage: LastUsage | Loose = None


class Payload(msgspec.Struct, gc=False):
    """`payload`; what it holds depends on the line's type."""

    type: Any = None
    id: Any = None
    model: Any = None
    model_provider: Any = None
    info: TokenInfo | Loose = None
    response_id: Any = None
    usage: LastUsage | Loose = None


class CodexRow(msgspec.Struct, gc=False):
    """One line."""

    timestamp: Any = None
    type: Any = None
    payload: Payload | Loose = None


class Context(msgspec.Struct, omit_defaults=True):
    """State from earlier lines that later ones need."""

    session: str = ""
    provider: str = ""
    model_name: str = ""
    total: TotalUsage | None = None
    last: LastUsage | None = None
    """The usage of the last count."""
    by_response: bool = False
    """Whether the file has records of responses beside the token counts."""


_NOTHING = Context()


class CodexDecoder(LineDecoder):
    """Keeps the session's context from line to line."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(CodexRow)
        self._seen = options.seen
        self._labels = Labeller(options, "openai", provider_caching("openai")).labels
        self._group_by = group_reader(options.group_by)
        self._context = Context()

    def _take(self, row: CodexRow, line: bytes, entries: list[Entry]) -> None:
        payload, at = row.payload, timestamp(row.timestamp)
        if not isinstance(row.type, str):
            raise foreign("Codex's session files")
        if not isinstance(payload, Payload):
            entries.append(Skipped("not_a_request", timestamp=at))
            return
        self._follow(row.type, payload)
        if row.type == "token_usage_record" and isinstance(payload.usage, LastUsage):
            entries.append(self._response(payload.usage, label(payload.response_id), at, line))
            return
        usage = payload.info.last_token_usage if isinstance(payload.info, TokenInfo) else None
        if payload.type != "token_count" or not isinstance(usage, LastUsage) or usage.input_tokens is None:
            entries.append(Skipped("not_a_request", timestamp=at))
        elif self._is_repeated(payload) or self._context.by_response:
            entries.append(Skipped("duplicate", timestamp=at))
        else:
            self._context.last = usage
            entries.append(self._entry(usage, at, line))

    def _response(self, usage: LastUsage, key: str, at: float | None, line: bytes) -> Entry:
        """The entry of a response record; the first may follow the token count of the same response."""
        context = self._context
        counted = not context.by_response and context.last == usage
        context.by_response, context.last = True, None
        if counted or (key and not self._seen.add("codex", key)):
            return Skipped("duplicate", timestamp=at)
        return self._entry(usage, at, line)

    def _follow(self, kind: str, payload: Payload) -> None:
        context = self._context
        if kind == "session_meta" and not context.session:  # a forked session repeats that of its origin
            context.session, context.provider = label(payload.id), label(payload.model_provider)
        elif kind == "turn_context":
            context.model_name = label(payload.model) or context.model_name

    def _is_repeated(self, payload: Payload) -> bool:
        total = payload.info.total_token_usage if isinstance(payload.info, TokenInfo) else None
        if not isinstance(total, TotalUsage):
            return False
        before, self._context.total = self._context.total, total
        return before == total

    def _entry(self, usage: LastUsage, at: float | None, line: bytes) -> Entry:
        context = self._context
        group = context.session if self._group_by is None else self._group_by(line)
        reading = Reading(
            prompt=usage.input_tokens,
            cached=usage.cached_input_tokens,
            written=usage.cache_write_input_tokens,
            output=usage.output_tokens,
            at=at,
        )
        return reading.entry(self._labels(context.provider, context.model_name, group))

    def snapshot(self) -> bytes:
        """The session's context."""
        return b"" if self._context == _NOTHING else msgspec.json.encode(self._context)

    def restore(self, snapshot: bytes) -> None:
        """Raises StateError if the snapshot is not one of this format."""
        if snapshot:
            self._context = decode_snapshot(snapshot, Context, CODEX_ROLLOUT.name)


_KINDS = frozenset(
    {"session_meta", "turn_context", "event_msg", "response_item", "compacted", "token_usage_record"}
)


class CodexRollout:
    """The format."""

    name = "codex_rollout"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample is a line of a session file."""
        kind = sample.get("type")
        return isinstance(kind, str) and kind in _KINDS and "payload" in sample

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that keeps the session's context."""
        return CodexDecoder(options)


CODEX_ROLLOUT = CodexRollout()
