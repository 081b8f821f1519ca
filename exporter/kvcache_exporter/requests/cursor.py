"""How far one log file has been read, as it stands in the state file."""

import json
from dataclasses import dataclass, fields
from typing import Annotated

import msgspec

from kvcache_exporter.errors import StateError
from kvcache_exporter.requests.identity import NO_PRINT, NOWHERE, TELLING_BYTES, FileId, Print

Place = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""In a file, in bytes."""


@dataclass(slots=True)
class Cursor:
    """One stream of lines; it lives on when its file is renamed, copied and truncated, or gzipped."""

    key: str
    path: str
    origin: str
    """Path at which the stream was first seen."""
    file: FileId = NOWHERE
    offset: Place = 0
    """Where a restart begins to read: the start of the oldest record that is not complete yet."""
    skip: Place = 0
    """Records after `offset` that were given already."""
    position: Place = 0
    """Everything before this was read."""
    head: Print = NO_PRINT
    tail: Print = NO_PRINT
    """The bytes just before `position`."""
    compressed: Place = 0
    """Compressed size of a gzipped file that was read to its end."""
    whole: bool = False
    """All that `compressed` bytes hold counts as read, and `position` is not known yet."""
    discarding: bool = False
    """The line at `position` is too long or began before us; drop it up to its newline."""
    ended: bool = False
    """The line before `position` was given although its newline was missing."""
    line: bool = False
    """The head holds a whole line."""
    open: bool = False
    """Lines were given since the last end of file was announced."""
    parent: str = ""
    """Key of the stream that this file is a copy of, which is then not read here."""
    gone: float = 0.0
    """Unix time since when no file holds this stream."""
    modified: int = 0
    """Modification time in nanoseconds, when last read."""

    @property
    def tells(self) -> bool:
        """Whether what was seen is enough to know the content again: lines begin like each other."""
        if self.head.size >= TELLING_BYTES or self.line:
            return True
        return self.head.size > 0 and self.position == 0

    def encode(self) -> bytes:
        values = {name: getattr(self, name) for name in FIELDS}
        return json.dumps(values, separators=(",", ":")).encode()

    def __post_init__(self) -> None:
        if self.tail.size > self.position:
            raise ValueError("more bytes before the position than there are")

    @classmethod
    def decode(cls, value: bytes) -> "Cursor":
        """Raises StateError if that is not what `encode` gave."""
        try:
            return msgspec.json.decode(value, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateError(
                f"a saved log position cannot be read ({error}); "
                "move the file at state.path away to begin anew, or run the version that wrote it"
            ) from error


FIELDS = tuple(field.name for field in fields(Cursor))
