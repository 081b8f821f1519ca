"""How far one log has been read, as kept in the state file."""

import json
from dataclasses import dataclass, fields
from typing import Annotated

import msgspec

from kvcache_exporter.errors import START_OVER, StateError
from kvcache_exporter.requests.identity import NO_PRINT, NOWHERE, TELLING_BYTES, FileId, Print

Place = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A position in a file, in bytes."""


@dataclass(slots=True)
class Cursor:
    """One stream of lines; it survives when its file is renamed, copied and truncated, or gzipped."""

    key: str
    path: str
    origin: str
    """Path at which the stream was first seen."""
    file: FileId = NOWHERE
    offset: Place = 0
    """Where reading resumes after a restart: the start of the oldest incomplete record."""
    skip: Place = 0
    """Number of records after `offset` that were delivered already."""
    position: Place = 0
    """Everything before this has been read."""
    head: Print = NO_PRINT
    tail: Print = NO_PRINT
    """The bytes just before `position`."""
    compressed: Place = 0
    """Compressed size of a gzipped file that was read to its end."""
    whole: bool = False
    """Whether the content of all `compressed` bytes counts as read, while `position` is still unknown."""
    discarding: bool = False
    """Whether the line at `position` is dropped up to its newline: too long, or begun before the start."""
    ended: bool = False
    """Whether the line before `position` was delivered although its newline was missing."""
    line: bool = False
    """Whether the head holds a complete line."""
    open: bool = False
    """Whether lines were delivered since the last announced end of file."""
    parent: str = ""
    """Key of the stream that this file is a copy of; a copy is not read."""
    gone: float = 0.0
    """Unix time since which no file holds this stream; 0 while one does."""
    modified: int = 0
    """Modification time of the file when it was last read, in nanoseconds."""

    @property
    def tells(self) -> bool:
        """Whether enough was seen to recognise the content again: lines often begin alike."""
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
        """Raises StateError if `encode` did not write this."""
        try:
            return msgspec.json.decode(value, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateError(f"a saved log position cannot be read ({error}); {START_OVER}") from error


FIELDS = tuple(field.name for field in fields(Cursor))
