"""Turns log lines into entries, one JSON object at a time, and explains lines without an entry."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kvcache_exporter.errors import START_OVER, RecordError, StateError
from kvcache_exporter.model import RequestColumns, Skipped
from kvcache_exporter.requests.formats.base import Entry

T = TypeVar("T")

FAILURES = (RecordError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BOM = b"\xef\xbb\xbf"
_MAX_DEPTH = 4
"""Maximum nesting of wrappers and arrays; real logs have less."""
_LOG_TEXT = re.compile(
    rb"\[?\d{4}-\d\d-\d\d|[\[(]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|event:|\[DONE\]"
)

_LOG_PREFIX = re.compile(rb"\A\[\d{4}-\d\d-\d\d[^\]{]{0,40}\] (?=\{)")
"""The prefix that a server's logger writes before a JSON object."""


class _Wrapper(msgspec.Struct):
    log: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()


def decode_snapshot(snapshot: bytes, kind: type[T], format_name: str) -> T:
    """Decodes a decoder's snapshot; raises StateError if it is not of this format."""
    try:
        return msgspec.json.decode(snapshot, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(
            f"the saved state of a log of format {format_name} cannot be read ({error}); {START_OVER}"
        ) from error


class LineDecoder:
    """Base class of decoders; a format defines `_take`.

    `row` is the type of one object, usually a Struct with counts of type `values.Tokens` and other fields
    that accept any JSON, so that an object fails to decode only if a count is not a number.
    """

    def __init__(self, row: type[msgspec.Struct] | type[dict[str, Any]]) -> None:
        self._decode_row: Any = msgspec.json.Decoder(row, strict=False).decode  # numeric strings

    def _take(self, row: Any, line: bytes, entries: list[Entry]) -> None:
        """Append the entries of one decoded object, or raise RecordError."""
        raise NotImplementedError

    def decode(self, lines: Sequence[bytes]) -> list[Entry]:
        """Entries that these lines finish."""
        entries: list[Entry] = []
        decode_row, take = self._decode_row, self._take
        for line in lines:
            try:
                take(decode_row(line), line, entries)
            except FAILURES as failure:
                self._salvage(line, failure, entries, 0)
        return entries

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """Entries that these lines finish."""
        return [*self.decode(lines)]

    def flush(self) -> list[Entry]:
        """Nothing is held back between lines."""
        return []

    def snapshot(self) -> bytes:
        """Nothing to save."""
        return b""

    def restore(self, snapshot: bytes) -> None:
        """Nothing was saved."""

    def _again(self, line: bytes, entries: list[Entry], depth: int) -> None:
        try:
            self._take(self._decode_row(line), line, entries)
        except FAILURES as failure:
            self._salvage(line, failure, entries, depth)

    def _salvage(self, line: bytes, failure: Exception, entries: list[Entry], depth: int) -> None:
        """Look inside wrappers and arrays; without success, report why the line has no record."""
        if isinstance(failure, RecordError):
            wrapped = unwrapped(line) if failure.reason == "no_usage" and depth < _MAX_DEPTH else None
            if wrapped is None:
                entries.append(RecordError(failure.reason, str(failure)))
            elif wrapped.lstrip()[:1] in {b"{", b"["}:
                self._again(wrapped, entries, depth + 1)
            else:
                entries.append(Skipped("not_a_request"))
            return
        bare = bare_json(line)
        elements = _elements(bare) if depth < _MAX_DEPTH else []
        if bare != line and depth < _MAX_DEPTH:
            self._again(bare, entries, depth + 1)
        elif elements:
            for element in elements:
                self._again(bytes(element), entries, depth + 1)
        else:
            entries.append(verdict(bare))


def bare_json(line: bytes) -> bytes:
    """The line without byte order mark, white space, `data:` of server-sent events and a logger's prefix."""
    bare = line.strip().removeprefix(_BOM).strip()
    return _LOG_PREFIX.sub(b"", bare.removeprefix(b"data:").strip(), count=1)


def unwrapped(line: bytes) -> bytes | None:
    """The content of a log shipper's {"log": "..."} or {"message": ...}; None if it is neither."""
    try:
        wrapper = msgspec.json.decode(line, type=_Wrapper)
        for raw in (bytes(wrapper.log), bytes(wrapper.message)):
            if raw[:1] == b'"':
                return msgspec.json.decode(raw, type=str).encode()
            if raw[:1] == b"{":
                return raw
    except FAILURES:
        pass
    return None


def verdict(bare: bytes) -> Entry:
    """Why a line that is not a JSON object has no record."""
    try:
        text = bare.decode()
    except UnicodeDecodeError:
        return RecordError("not_utf8", "the line is not UTF-8")
    if _LOG_TEXT.match(bare):
        return Skipped("not_a_request")
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return RecordError("not_json", "the line is not JSON")
    return _verdict_on_json(bare)


def _verdict_on_json(bare: bytes) -> RecordError:
    """Unlike msgspec, the standard library accepts NaN, Infinity and numbers out of range."""
    try:
        msgspec.json.decode(bare)
    except FAILURES:
        return RecordError("invalid", "the line holds NaN, Infinity or a number out of range")
    if bare[:1] == b"{":
        return RecordError("invalid", "a token count is negative, fractional, too large or not a number")
    return RecordError("no_usage", "the line is JSON but not an object")


def _elements(bare: bytes) -> list[msgspec.Raw]:
    if bare[:1] != b"[":
        return []
    try:
        return msgspec.json.decode(bare, type=list[msgspec.Raw])
    except FAILURES:
        return []
