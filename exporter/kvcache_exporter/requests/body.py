"""Open log files, plain or gzipped, read by position in their (decompressed) content."""

import os
import stat
import zlib
from typing import Protocol

from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import HEAD_BYTES, TAIL_BYTES, FileId

GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 64 * 1024
_OUTPUT = 1024 * 1024


class Body(Protocol):
    """Content that a cursor points into."""

    gz: bool

    def stat(self) -> os.stat_result: ...

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes of content; fewer only at the current end."""
        ...

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """The first bytes of content."""
        ...

    def holds(self, cursor: Cursor) -> bool:
        """Whether this may still be the cursor's file; cheap enough for every poll."""
        ...

    def covers(self, cursor: Cursor) -> bool:
        """Whether the file contains everything that the cursor has passed; may be slow."""
        ...

    def close(self) -> None: ...


class PlainBody:
    gz = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def stat(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def head(self, size: int = HEAD_BYTES) -> bytes:
        return self.read(0, size)

    def holds(self, cursor: Cursor) -> bool:
        known = cursor.tail.size
        return (
            self.stat().st_size >= cursor.position
            and cursor.head.matches(self.head(cursor.head.size))
            and cursor.tail.matches(self.read(cursor.position - known, known))
        )

    def covers(self, cursor: Cursor) -> bool:
        return not cursor.whole and self.holds(cursor)

    def close(self) -> None:
        os.close(self._descriptor)


class GzipBody:
    """Positions count decompressed bytes; reading backwards decompresses from the start again."""

    gz = True

    def __init__(self, descriptor: int, limit: int | None = None) -> None:
        """`limit` is the maximum number of compressed bytes to read."""
        self._descriptor = descriptor
        self._limit = limit
        self._rewind()

    def _rewind(self) -> None:
        self._inflate = zlib.decompressobj(31)
        self._input = b""
        self._next = 0
        self._start = 0
        self._output = b""
        self._pending = False
        self.damaged = False

    def stat(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        if offset < self._start:
            self._rewind()
        keep = max(0, offset - TAIL_BYTES)
        self._drop(keep)
        while self._start + len(self._output) < offset + size:
            piece = self._step()
            if piece is None:
                break
            self._output += piece
            self._drop(keep)
        begin = offset - self._start
        return self._output[begin : begin + size]

    def head(self, size: int = HEAD_BYTES) -> bytes:
        return GzipBody(self._descriptor).read(0, size) if size else b""

    def holds(self, cursor: Cursor) -> bool:
        return self.stat().st_size >= cursor.compressed and cursor.head.matches(self.head(cursor.head.size))

    def covers(self, cursor: Cursor) -> bool:
        known = cursor.tail.size
        return cursor.head.matches(self.head(cursor.head.size)) and cursor.tail.matches(
            GzipBody(self._descriptor).read(cursor.position - known, known)
        )

    def length(self, limit: int) -> int:
        """Bytes of content in the first `limit` compressed bytes."""
        probe, total = GzipBody(self._descriptor, limit), 0
        while (piece := probe._step()) is not None:
            total += len(piece)
        return total

    def close(self) -> None:
        os.close(self._descriptor)

    def _drop(self, offset: int) -> None:
        surplus = min(offset - self._start, len(self._output))
        if surplus > 0:
            self._start += surplus
            self._output = self._output[surplus:]

    def _step(self) -> bytes | None:
        """Decompress the next piece; None if there is no more for now."""
        if not self._input and not self._pending and not self._refill():
            return None
        try:
            output = self._inflate.decompress(self._input, _OUTPUT)
        except zlib.error:
            self.damaged = True
            self._input = b""
            return None
        self._pending = len(output) == _OUTPUT
        self._input = self._inflate.unconsumed_tail
        if self._inflate.eof:
            # Several members may follow each other, with zeros between them.
            self._input = self._inflate.unused_data.lstrip(b"\0")
            self._inflate = zlib.decompressobj(31)
            self._pending = False
        return output

    def _refill(self) -> bool:
        room = _PIECE if self._limit is None else min(_PIECE, self._limit - self._next)
        if self.damaged or room <= 0:
            return False
        self._input = os.pread(self._descriptor, room, self._next)
        self._next += len(self._input)
        return bool(self._input)


def read_on(body: Body, cursor: Cursor, offset: int, size: int) -> tuple[bytes, int] | None:
    """Up to `size` bytes from `offset`, preceded by known bytes, and the number of those.

    None if the cursor is at `offset` and the bytes that it has passed are no longer there.
    """
    # One call reads both, so that a truncation in between cannot slip through.
    known = cursor.tail.size if offset == cursor.position else 0
    window = body.read(offset - known, known + size)
    return (window, known) if not known or cursor.tail.matches(window) else None


def open_body(path: str, expected: FileId | None = None) -> Body | None:
    """The regular file at `path`; None if it is not the expected one, or too short to tell its kind.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        magic = os.pread(descriptor, 2, 0)
        usable = stat.S_ISREG(found.st_mode) and expected in (None, (found.st_dev, found.st_ino))
        if usable and magic not in (b"", GZIP_MAGIC[:1]):
            return GzipBody(descriptor) if magic == GZIP_MAGIC else PlainBody(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
