"""Removes the wrapping of container runtimes and of JSON arrays from log lines.

A file may mix all of these, so each line is examined by itself: CRI (`<time> stdout F <text>`), docker
json-file (`{"log": "...", "stream": ..., "time": ...}`), one array over many lines (`[`, `{...},`, `]`), a
byte order mark. Everything else passes unchanged, also the wrapping of Fluent Bit and Vector, which decoders
handle.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import msgspec

OVERFLOW: Final = b"\x00too long\x00"
"""Marks, by identity, a record whose joined parts were too long."""

_DOCKER = b'{"log":'
_PREFIX = itemgetter(slice(0, len(_DOCKER)))
_LAST, _SUFFIX = itemgetter(-1), itemgetter(slice(-2, None))
_BOM = b"\xef\xbb\xbf"
_ARRAY_ENDS = (b",", b"]", b",\r", b"]\r")
_ARRAY_LAST, _CARRIAGE_RETURN = frozenset(b",]"), ord("\r")
_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (stdout|stderr) ([FP])(?::\S*)?(?: |$)(.*)", re.DOTALL
)
_HELD_LIMIT = 64 * 1024 * 1024
"""Bytes of lines that may follow while a record is incomplete."""


class _DockerLine(msgspec.Struct, forbid_unknown_fields=True):
    log: str
    stream: str
    time: str
    attrs: msgspec.Raw = msgspec.Raw()


_decode_docker = msgspec.json.Decoder(_DockerLine).decode


@dataclass(slots=True)
class _Partial:
    fed: int
    done: int
    size: int = 0
    parts: list[bytes] = field(default_factory=list)


class Framer:
    """Unwraps the lines of one file, in order.

    `held_bytes` and `held_records` say where to resume: after a restart, feed a new framer from `held_bytes`
    before the end of what was fed; its first `held_records` records are repetitions.
    """

    def __init__(self, max_bytes: int = 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._partials: dict[bytes, _Partial] = {}
        self._fed = 0
        self._done = 0

    @property
    def held_bytes(self) -> int:
        """Bytes fed since the start of the oldest incomplete record, newlines included."""
        return self._fed - min((p.fed for p in self._partials.values()), default=self._fed)

    @property
    def held_records(self) -> int:
        """Records returned since then."""
        return self._done - min((p.done for p in self._partials.values()), default=self._done)

    def feed(self, lines: list[bytes]) -> list[bytes]:
        """Records completed by these lines (without newlines); OVERFLOW for one that is too long."""
        if not self._partials and is_plain(lines):
            return lines
        records: list[bytes] = []
        for line in lines:
            self._line(line, records)
            self._fed += len(line) + 1
            if self._partials and self.held_bytes > _HELD_LIMIT:
                self._give_up(records)
        return records

    def passed(self, size: int) -> None:
        """Account for bytes of the file that are not fed: too long lines, or padding."""
        self._fed += size

    def _line(self, line: bytes, records: list[bytes]) -> None:
        line = line.removeprefix(_BOM)
        if line.startswith(_DOCKER) and (wrapped := _docker(line)) is not None:
            text = wrapped.log.encode()
            complete = text.endswith(b"\n")
            self._part(wrapped.stream.encode(), text[:-1] if complete else text, complete, records)
        elif line[:1].isdigit() and (match := _CRI.match(line)):
            stream, tag, text = match.groups()
            self._part(stream, text, tag == b"F", records)
        elif (element := _without_array(line)) is not None:
            self._give(element, records)

    def _part(self, stream: bytes, text: bytes, complete: bool, records: list[bytes]) -> None:
        # Runtimes have two streams; other names in a line must not use up memory.
        stream = stream if stream in (b"stdout", b"stderr") else b""
        partial = self._partials.get(stream)
        if partial is None:
            if complete:
                self._give(text, records)
                return
            partial = self._partials.setdefault(stream, _Partial(self._fed, self._done))
        partial.size += len(text)
        if partial.size <= self._max_bytes:
            partial.parts.append(text)
        else:
            partial.parts.clear()
        if complete:
            del self._partials[stream]
            self._give(b"".join(partial.parts) if partial.size <= self._max_bytes else OVERFLOW, records)

    def _give(self, record: bytes, records: list[bytes]) -> None:
        records.append(record)
        self._done += 1

    def _give_up(self, records: list[bytes]) -> None:
        for _ in range(len(self._partials)):
            self._give(OVERFLOW, records)
        self._partials.clear()


def is_plain(lines: list[bytes]) -> bool:
    """Whether every line starts a JSON object that is neither wrapped nor part of an array.

    Elements of an array end with a comma or a bracket.
    """
    if not lines or not _all_objects(set(map(_PREFIX, lines))):
        return False
    # The last byte, a number, costs a third of a piece of the line.
    ends = set(map(_LAST, lines))
    if _CARRIAGE_RETURN in ends:
        return not any(map(_ends_element, set(map(_SUFFIX, lines))))
    return _ARRAY_LAST.isdisjoint(ends)


def _ends_element(suffix: bytes) -> bool:
    return suffix.endswith(_ARRAY_ENDS)


def _all_objects(prefixes: Iterable[bytes]) -> bool:
    return all(prefix[:1] == b"{" and prefix != _DOCKER for prefix in prefixes)


def _docker(line: bytes) -> _DockerLine | None:
    try:
        return _decode_docker(line)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _without_array(line: bytes) -> bytes | None:
    """The element on a line of an array over many lines; None for the lines with its brackets."""
    text = line.strip()
    if text in (b"[", b"]", b"],", b","):
        return None
    if text.startswith(b"{") and text.endswith((b",", b"]")):
        return text.rstrip(b",] \t")
    if text.startswith((b"[{", b"[ {")) and text.endswith(b"},"):
        return text[1:-1]
    return line
