"""Tracks which file holds which stream while files are rotated, copied, truncated and removed."""

from collections import Counter
from collections.abc import Iterable, Sequence

from kvcache_exporter.requests.body import Body
from kvcache_exporter.requests.copies import Likeness, Relatives
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import NOWHERE, FileId, Print
from kvcache_exporter.requests.listing import Disk, Found
from kvcache_exporter.requests.options import FollowOptions
from kvcache_exporter.requests.recover import Recovery
from kvcache_exporter.requests.stream import Stream

_ROUNDS = 5
_MOST_OPEN = 512
_OPEN_AT_REST = 256
_TICK_SECONDS = 2.0
"""After this time, any change of a file also changes its modification time."""


class Tracker:
    """Decides, at every scan, from which file each stream is read, and which files are new."""

    def __init__(self, patterns: Sequence[str], cursors: Iterable[Cursor], options: FollowOptions) -> None:
        self.options = options
        self.streams = {cursor.key: self._stream(cursor) for cursor in cursors}
        self.rotations: Counter[str] = Counter()
        self.next_key = 1
        self.first = False
        """Whether this is the first scan of the source ever."""
        self.at_end = False
        """Whether files found by the first scan count as read."""
        self.disk = Disk(patterns)
        self._taken: set[FileId] = set()
        self._counted: set[FileId] = set()
        self._unread_at_first: set[FileId] = set()
        self._relatives = Relatives(())
        self._open_files = 0
        self._recovery = Recovery(self.streams, self.disk, options)
        self._changed = False

    def scan(self) -> None:
        """Match streams with files.

        A file is read only up to the size it had before the folder was listed. A copy that the listing does
        not show was therefore made later and contains everything that was read, so copies are safe to match.
        """
        self.disk.problems.clear()
        for _ in range(_ROUNDS):
            self._changed = False
            self._round()
            if not self._changed:
                break

    def tidy(self) -> None:
        """Close files that are read to their end, so that few are open and deleted ones free their space."""
        now = self.options.clock()
        at_rest = [s for s in self.streams.values() if s.body is not None and s.drained]
        at_rest.sort(key=lambda stream: stream.active)
        surplus = sum(s.body is not None for s in self.streams.values()) - _OPEN_AT_REST
        for number, stream in enumerate(at_rest):
            if number < surplus or now - stream.active > self.options.linger_seconds:
                self._close(stream)

    def _round(self) -> None:
        now = self.options.clock()
        for stream in self.streams.values():
            stream.measure(now)
        self.disk.look([stream.cursor for stream in self.streams.values()])
        self._relatives = Relatives(self.streams.values())
        self._open_files = sum(stream.body is not None for stream in self.streams.values())
        for stream in self.streams.values():
            stream.linked = stream.cursor.file in self.disk.known
        # If there are more files than may be open, those that waited longest come first.
        for stream in sorted(self.streams.values(), key=lambda stream: stream.active):
            if stream.cursor.key in self.streams:
                self._locate(stream, now)
        if self._recovery.run(self._relatives, now) or self._changed:
            # The next round may find a lost stream in a file that looks new.
            self._changed = True
            return
        self._taken = {stream.cursor.file for stream in self.streams.values()}
        for found in self.disk.matched.values():
            if found.size and found.file not in self._taken:
                self._classify(found)
        if self.first:
            self._unread_at_first = set(self.disk.unreadable)
        self.first = False

    def _locate(self, stream: Stream, now: float) -> None:
        cursor = stream.cursor
        found = self.disk.known.get(cursor.file)
        if found is not None:
            cursor.path, cursor.gone = found.path, 0.0
        elif stream.body is None:
            cursor.gone = cursor.gone or now
        if cursor.parent:
            return
        if found is None and stream.body is None:
            return
        if found is not None and stream.body is None and stream.checked != (found.size, found.modified):
            self._reopen(stream, found)
        if stream.body is not None and not stream.body.holds(cursor):
            self._cut(stream)
            return
        stream.see_head()
        if found is not None and stream.body is not None:
            cursor.modified = max(cursor.modified, found.modified)

    def _reopen(self, stream: Stream, found: Found) -> None:
        if self._open_files >= _MOST_OPEN:
            return
        body = self.disk.open(found)
        if body is not None and stream.cursor.position == 0 and self._may_be_new(found, body, stream.cursor):
            body.close()
            self._counted.add(found.file)
            self._drop(stream)
        elif body is not None:
            stream.attach(body)
            self._open_files += 1
            self._changed = True
        elif found.is_shorter_than(stream.cursor):
            self._cut(stream)

    def _may_be_new(self, found: Found, body: Body, cursor: Cursor) -> bool:
        """Whether to reconsider a file of which nothing was read: a copy may have reused its inode."""
        if found.file not in self.disk.matched or not body.holds(cursor):
            return False
        verdict, _ = self._relatives.most_like(found, body, self.disk)
        return verdict is not Likeness.OTHER

    def _drop(self, stream: Stream) -> None:
        key = stream.cursor.key
        for related_key in [k for k, s in self.streams.items() if key in (k, s.cursor.parent)]:
            del self.streams[related_key]

    def _cut(self, stream: Stream) -> None:
        """The stream's content is no longer in its file."""
        self.rotations["truncated"] += 1
        self._changed = True
        self._counted.add(stream.cursor.file)
        stream.detach()
        stream.cursor.file, stream.linked = NOWHERE, False

    def _classify(self, found: Found) -> None:
        body = self.disk.open(found)
        if body is None:
            return
        verdict, parent = self._relatives.most_like(found, body, self.disk)
        head = Print.of(body.head())
        if verdict is Likeness.LONGER and parent is not None:
            self._recovery.replace(parent, body, found)
            self._changed = True
        elif verdict is Likeness.UNSURE or not head.size:
            body.close()
        else:
            self._begin(found, body, head, parent)

    def _begin(self, found: Found, body: Body, head: Print, parent: Stream | None) -> None:
        cursor = Cursor(f"f{self.next_key}", found.path, found.path, found.file, head=head)
        self.next_key += 1
        stream = self.streams[cursor.key] = self._stream(cursor)
        stream.linked = True
        self._relatives.add(stream)
        if parent is not None:
            cursor.parent = parent.cursor.key
            stream.note_size(body)
            body.close()
        else:
            self._begin_reading(stream, found, body)

    def _begin_reading(self, stream: Stream, found: Found, body: Body) -> None:
        stream.attach(body)
        self._changed = True
        if self.at_end and (self.first or found.file in self._unread_at_first):
            stream.start_at_end(body)
            self._close(stream)
            return
        self._count_rotation(found)
        self._open_files += 1
        if self._open_files > _MOST_OPEN:
            stream.detach()

    def _count_rotation(self, found: Found) -> None:
        if found.file in self._counted:
            self._counted.discard(found.file)
        elif any(s.cursor.origin == found.path for s in self.streams.values() if s.cursor.file != found.file):
            self.rotations["renamed"] += 1
        elif not self.first:
            self.rotations["new_file"] += 1

    def _close(self, stream: Stream) -> None:
        found = self.disk.known.get(stream.cursor.file)
        stream.detach()
        settled = found is not None and self.options.clock() - found.modified / 1e9 > _TICK_SECONDS
        stream.checked = (found.size, found.modified) if found is not None and settled else (-1, -1)

    def _stream(self, cursor: Cursor) -> Stream:
        return Stream(cursor, self.options.max_line_bytes, self.options.block_bytes)
