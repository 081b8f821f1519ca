"""Reads one stream of lines: keeps its position, and yields complete lines only."""

from kvcache_exporter.requests.body import Body, GzipBody, read_on
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.framing import OVERFLOW, Framer
from kvcache_exporter.requests.identity import HEAD_BYTES, NO_PRINT, TAIL_BYTES, Print
from kvcache_exporter.requests.lines import Batch, is_whole_json, split_lines


class Stream:
    """A cursor and, while it is open, the file that it points into."""

    def __init__(self, cursor: Cursor, max_line_bytes: int, block_bytes: int) -> None:
        self.cursor = cursor
        self.body: Body | None = None
        self.limit = 0
        """Size of the file on disk when measured, the limit of this poll's reads; -1 before that."""
        self.linked = False
        """Whether the file still has a name."""
        self.checked = (-1, -1)
        """Size and modification time of a file that is not kept open, when last checked."""
        self.active = 0.0
        """When the stream was last read."""
        self.rest = False
        """Whether bytes wait for the end of their line."""
        if cursor.offset != cursor.position:
            cursor.discarding = False
        self._at = cursor.offset
        self._to_skip = cursor.skip
        self._stalled = -2
        self._framer = Framer(max_line_bytes)
        self._max_line = max_line_bytes
        self._block = min(block_bytes, max_line_bytes + 1)

    @property
    def is_lost(self) -> bool:
        """Whether no known file holds the stream."""
        return self.body is None and not self.linked

    @property
    def drained(self) -> bool:
        """Whether the last attempt found nothing more to read."""
        return self.limit >= 0 and (self.limit == self._stalled or self.lag == 0)

    @property
    def lag(self) -> int:
        """Bytes on disk that are not read; compressed ones of a gzipped file."""
        if self.body is not None and self.body.gz:
            return 0 if self.limit in (self.cursor.compressed, self._stalled) else max(0, self.limit)
        return max(0, self.limit - self._at)

    def attach(self, body: Body) -> None:
        """Continue in this file, from the next `measure` on."""
        self.detach()
        found = body.stat()
        self.body = body
        self.cursor.file = found.st_dev, found.st_ino
        self.cursor.gone = 0.0
        self.limit, self._stalled = -1, -2

    def detach(self) -> None:
        if self.body is not None:
            self.body.close()
        self.body, self.limit = None, 0

    def measure(self, now: float) -> None:
        """Set how far the file may be read; what is written later waits for the next poll."""
        if self.body is not None and self.limit != (size := self.body.stat().st_size):
            self.limit, self.active = size, now

    def see_head(self) -> None:
        """Extend the fingerprint with the part of the head that was read.

        A copy need not contain what was not read. For a file not read at all, any head is better than none.
        """
        cursor = self.cursor
        wanted = min(HEAD_BYTES, cursor.position or HEAD_BYTES)
        if self.body is not None and cursor.head.size < wanted:
            seen = self.body.head(wanted)
            if cursor.position == 0 or cursor.head.matches(seen):
                cursor.head, cursor.line = Print.of(seen), b"\n" in seen

    def start_at_end(self, body: Body) -> None:
        """Treat everything up to the last complete line as read."""
        size = body.stat().st_size
        begin = max(0, size - self._max_line - 1)
        newline = -1 if body.gz else body.read(begin, size - begin).rfind(b"\n")
        self._start_at(body, size if newline < 0 < begin else begin + newline + 1)

    def start_at_size(self, body: Body) -> None:
        """Treat every byte as read."""
        self._start_at(body, body.stat().st_size)

    def note_size(self, body: Body) -> None:
        """Remember a copy, which is not read itself, so that it is recognised under another name."""
        head = body.head()
        self.cursor.head, self.cursor.line = Print.of(head), b"\n" in head
        if not body.gz:
            size = body.stat().st_size
            self.cursor.position = size
            self.cursor.tail = Print.of(body.read(max(0, size - TAIL_BYTES), min(size, TAIL_BYTES)))

    def start_over(self, body: Body) -> None:
        """Read a file that was taken for a copy from its beginning."""
        self.cursor.head = Print.of(body.head())
        self.cursor.position, self.cursor.tail = 0, NO_PRINT
        self.cursor.origin = self.cursor.path

    def _start_at(self, body: Body, position: int) -> None:
        if body.gz:
            self.cursor.whole, self.cursor.compressed = True, body.stat().st_size
        else:
            self._jump(body, position)

    def _jump(self, body: Body, position: int) -> None:
        cursor = self.cursor
        cursor.position = self._at = cursor.offset = position
        head = body.head(min(position, HEAD_BYTES))
        cursor.head, cursor.line = Print.of(head), b"\n" in head
        cursor.tail = Print.of(body.read(max(0, position - TAIL_BYTES), min(position, TAIL_BYTES)))
        cursor.discarding = position > 0 and body.read(position - 1, 1) != b"\n"

    def take(self) -> Batch | None:
        """The next complete lines; None when there are none for now."""
        body, cursor = self.body, self.cursor
        if body is None or self.limit < 0 or self.drained or (cursor.whole and not self._find_position(body)):
            return None
        size = self._block if body.gz else min(self._block, self.limit - self._at)
        seen = read_on(body, cursor, self._at, size)
        if seen is None:
            return None
        window, known = seen
        batch = self._from(window, known)
        if batch is None and len(window) - known == self._block:
            batch = self._long(body)
        if batch is None:
            self._stall(body, len(window) > known)
        return batch

    def settle(self) -> Batch | None:
        """The bytes after the last newline, if they are a whole JSON object or array.

        Such a line cannot change any more, and some writers never end it.
        """
        body, cursor = self.body, self.cursor
        if body is None or not self.rest or cursor.discarding:
            return None
        self.rest = False
        seen = read_on(body, cursor, self._at, self._max_line)
        if seen is None or not is_whole_json(seen[0][seen[1] :]):
            return None
        window, known = seen
        before = cursor.position
        batch = self._give([window[known:].rstrip(b"\r")], window, known, len(window))
        cursor.ended = True
        return batch._replace(lines=int(cursor.position > before))

    def _from(self, window: bytes, known: int) -> Batch | None:
        cursor = self.cursor
        if len(window) == known:
            return None
        if cursor.ended and self._at == cursor.position:
            return self._missing_newline(window, known)
        if window[known] == 0 and (self._at == 0 or (known and window[known - 1] == 0)):
            # A writer that does not append leaves a hole at the start of a file truncated under it.
            return self._pass(window, known, len(window) - len(window[known:].lstrip(b"\0")))
        if cursor.discarding:
            end = window.find(b"\n", known) + 1
            cursor.discarding = not end
            return self._pass(window, known, end or len(window))
        end = window.rfind(b"\n", known) + 1
        return self._give(split_lines(window, known, end), window, known, end) if end else None

    def _missing_newline(self, window: bytes, known: int) -> Batch | None:
        start = window[known : known + 2]
        if start == b"\r":
            return None
        self.cursor.ended = False
        length = 2 if start == b"\r\n" else 1 if start[:1] == b"\n" else 0
        return self._pass(window, known, known + length)

    def _long(self, body: Body) -> Batch | None:
        room = self._max_line + 1 if body.gz else min(self._max_line + 1, self.limit - self._at)
        seen = read_on(body, self.cursor, self._at, room)
        return None if seen is None else self._from(*seen) or self._too_long(*seen)

    def _too_long(self, window: bytes, known: int) -> Batch | None:
        if len(window) - known <= self._max_line:
            return None
        new = int(self._at >= self.cursor.position)
        self.cursor.discarding = True
        return self._pass(window, known, len(window))._replace(lines=new, too_long=new)

    def _pass(self, window: bytes, known: int, end: int) -> Batch:
        self._framer.passed(end - known)
        self._move(window, known, end)
        return Batch([], 0, 0, end - known)

    def _give(self, lines: list[bytes], window: bytes, known: int, end: int) -> Batch:
        counted = window.count(b"\n", known, known + max(0, self.cursor.position - self._at))
        records = self._framer.feed(lines)
        framed = records is not lines
        if self._to_skip:
            skipped = min(self._to_skip, len(records))
            self._to_skip -= skipped
            records = records[skipped:]
        self._move(window, known, end)
        too_long = 0
        if framed:
            kept = [record for record in records if record is not OVERFLOW]
            too_long, records = len(records) - len(kept), kept
        self.cursor.open = True
        return Batch(records, len(lines) - counted, too_long, end - known)

    def _move(self, window: bytes, known: int, end: int) -> None:
        cursor = self.cursor
        self._at += end - known
        if self._at > cursor.position:
            cursor.ended = False
        if self._at >= cursor.position:
            if cursor.position == 0:
                head = window[known:end][:HEAD_BYTES]
                cursor.head, cursor.line = Print.of(head), b"\n" in head
            cursor.position = self._at
            cursor.tail = Print.of(window[max(0, end - TAIL_BYTES) : end])
        cursor.offset = self._at - self._framer.held_bytes
        cursor.skip = self._framer.held_records + self._to_skip

    def _stall(self, body: Body, rest: bool) -> None:
        self.rest, self._stalled = rest, self.limit
        if body.gz and not rest:
            self.cursor.compressed = self.limit

    def _find_position(self, body: Body) -> bool:
        cursor = self.cursor
        if not isinstance(body, GzipBody) or self.limit <= cursor.compressed:
            return False
        self._jump(body, body.length(cursor.compressed))
        cursor.whole = False
        return True
