"""Keeps streams of lines and files together while these are rotated, copied, truncated and removed."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvcache_exporter.requests.body import Body, open_body
from kvcache_exporter.requests.copies import Likeness, head_allows, likeness, may_be_copy
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import NOWHERE, FileId, Print, folder_of, related
from kvcache_exporter.requests.listing import Found, matched_files, neighbours, note
from kvcache_exporter.requests.stream import Stream

_ROUNDS = 3
_MOST_OPEN = 512
_OPEN_AT_REST = 256
_MOST_REFUSALS = 10_000
_TICK_SECONDS = 2.0
"""After this long, a change of a file is sure to change its modification time too."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    max_line_bytes: int = 1024 * 1024
    block_bytes: int = 512 * 1024
    settle_seconds: float = 10.0
    """After how long at rest a last line without newline is given, if it is whole JSON."""
    linger_seconds: float = 60.0
    """How long a file at its end is kept open, and a rotated one may still be written to."""
    idle_seconds: float = 600.0
    """After how long at rest the end of a file is announced that nobody rotated."""
    forget_seconds: float = 24 * 3600.0
    """How long the position of a file that is gone is kept, in case that a copy turns up."""
    clock: Callable[[], float] = time.time


class Tracker:
    """Decides at every scan from which file each stream is read and which files are new."""

    def __init__(self, patterns: Sequence[str], cursors: Iterable[Cursor], options: FollowOptions) -> None:
        self.options = options
        self.streams = {cursor.key: self._stream(cursor) for cursor in cursors}
        self.rotations: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        self.next_key = 1
        self.first = False
        """Whether nothing was ever seen of this source before."""
        self.at_end = False
        """Whether files found at first count as read."""
        self._patterns = tuple(patterns)
        self._known: dict[FileId, Found] = {}
        self._taken: set[FileId] = set()
        self._truncated: set[FileId] = set()
        self._unreadable: set[FileId] = set()
        self._refused: set[tuple[object, ...]] = set()
        self._changed = False

    def scan(self) -> None:
        """Bring streams and files together.

        A file is read only up to the size it had before the folder was listed. A copy that the listing does
        not show was made later then, and holds all that was read: this makes copies safe to match.
        """
        self.problems = {}
        for _ in range(_ROUNDS):
            self._changed = False
            self._round()
            if not self._changed:
                break

    def is_lost(self, stream: Stream) -> bool:
        """Whether no file holds the stream, as far as is known."""
        return stream.body is None and not stream.linked

    def tidy(self) -> None:
        """Close files at their end, so that few are open and deleted ones give back their space."""
        now = self.options.clock()
        at_rest = [s for s in self.streams.values() if s.body is not None and s.drained]
        at_rest.sort(key=lambda stream: stream.active)
        surplus = self._open_count() - _OPEN_AT_REST
        for number, stream in enumerate(at_rest):
            if number < surplus or now - stream.active > self.options.linger_seconds:
                self._close(stream)

    def _round(self) -> None:
        now = self.options.clock()
        for stream in self.streams.values():
            stream.measure(now)
        matched = matched_files(self._patterns, self.problems)
        others = self._others(matched)
        self._known = others | matched
        for stream in list(self.streams.values()):
            self._locate(stream, now)
        for stream in [s for s in self.streams.values() if not s.cursor.parent and self.is_lost(s)]:
            self._find_again(stream, matched, now)
        for stream in [s for s in self.streams.values() if s.cursor.parent]:
            self._review(stream)
        self._taken = {stream.cursor.file for stream in self.streams.values()}
        for found in matched.values():
            if found.size and found.file not in self._taken:
                self._classify(found)
        self.first = False

    def _others(self, matched: dict[FileId, Found]) -> dict[FileId, Found]:
        missing = (s.cursor for s in self.streams.values() if s.cursor.file not in matched)
        folders = {folder_of(cursor.path) for cursor in missing}
        return neighbours(folders) if folders else {}

    def _locate(self, stream: Stream, now: float) -> None:
        cursor = stream.cursor
        found = self._known.get(cursor.file)
        stream.linked = found is not None
        if found is not None:
            cursor.path, cursor.gone = found.path, 0.0
            cursor.modified = max(cursor.modified, found.modified)
        elif stream.body is None:
            cursor.gone = cursor.gone or now
        if cursor.parent:
            return
        if found is not None and stream.body is None and stream.checked != (found.size, found.modified):
            self._reopen(stream, found)
        if stream.body is not None and not stream.body.holds(cursor):
            self._cut(stream)
        stream.see_head()

    def _reopen(self, stream: Stream, found: Found) -> None:
        body = self._open(found)
        if body is not None:
            stream.attach(body)
            self._changed = True
        elif found.size < 2 and found.size < max(stream.cursor.position, stream.cursor.head.size):
            self._cut(stream)

    def _cut(self, stream: Stream) -> None:
        """The stream's content is no longer in its file."""
        self.rotations["truncated"] += 1
        self._truncated.add(stream.cursor.file)
        stream.detach()
        stream.cursor.file, stream.linked = NOWHERE, False

    def _find_again(self, stream: Stream, matched: dict[FileId, Found], now: float) -> None:
        """Look for a copy of a stream that has lost its file, and go on there."""
        cursor = stream.cursor
        cursor.gone = cursor.gone or now
        if not cursor.head.size or now - cursor.gone > self.options.forget_seconds:
            del self.streams[cursor.key]
            return
        for found in self._candidates(cursor, matched):
            mark = (cursor.key, cursor.position, *found)
            if mark not in self._refused and (body := self._open(found)) is not None:
                if body.covers(cursor):
                    self._move(stream, body, found)
                    return
                body.close()
                self._refuse(mark)

    def _candidates(self, cursor: Cursor, matched: dict[FileId, Found]) -> list[Found]:
        followed = {s.cursor.file for s in self.streams.values() if not s.cursor.parent}
        copies = {s.cursor.file for s in self.streams.values() if s.cursor.parent}
        candidates = [
            found
            for file, found in self._known.items()
            if file not in followed
            and (file in matched or file in copies or found.modified >= cursor.modified)
            and (related(found.path, cursor.path) or related(found.path, cursor.origin))
        ]
        return sorted(candidates, key=lambda found: (found.file in copies, found.modified), reverse=True)

    def _move(self, stream: Stream, body: Body, found: Found) -> None:
        for copy in [s for s in self.streams.values() if s.cursor.parent and s.cursor.file == found.file]:
            del self.streams[copy.cursor.key]
        stream.attach(body)
        stream.cursor.path, stream.linked = found.path, True
        self._changed = True

    def _review(self, copy: Stream) -> None:
        """Look whether a copy still is one; if not, it is a log of its own."""
        cursor = copy.cursor
        found = self._known.get(cursor.file)
        if found is None:
            if self.options.clock() - cursor.gone > self.options.linger_seconds:
                del self.streams[cursor.key]
            return
        body = self._open(found)
        if body is None:
            return
        original = self.streams.get(cursor.parent)
        if original is None or self.is_lost(original):
            self._orphan(copy, original, body)
            return
        verdict, parent = self._compare(found, body)
        if verdict is Likeness.OTHER:
            self._release(copy, body, passed=False)
        elif verdict is Likeness.LONGER and parent is not None:
            self._move(parent, body, found)
        else:
            cursor.parent = parent.cursor.key if parent is not None else cursor.parent
            cursor.head = Print.of(body.head())
            body.close()

    def _orphan(self, copy: Stream, original: Stream | None, body: Body) -> None:
        """The copied stream is lost and was read further than this copy goes."""
        gone = 0.0 if original is None or original.cursor.file == NOWHERE else original.cursor.gone
        if self.options.clock() - gone <= self.options.linger_seconds:
            # It may be on its way to another name.
            body.close()
        else:
            self._release(copy, body, passed=copy.cursor.head.matches(body.head()))

    def _release(self, copy: Stream, body: Body, *, passed: bool) -> None:
        copy.cursor.parent = ""
        copy.attach(body)
        if passed:
            copy.start_at_size(body)
        else:
            copy.cursor.head = Print.of(body.head())
        self._changed = True

    def _classify(self, found: Found) -> None:
        body = self._open(found)
        if body is None:
            return
        verdict, parent = self._compare(found, body)
        head = Print.of(body.head())
        if verdict is Likeness.LONGER and parent is not None:
            self._move(parent, body, found)
        elif verdict is Likeness.UNSURE or not head.size:
            body.close()
        else:
            self._begin(found, body, head, parent)

    def _begin(self, found: Found, body: Body, head: Print, parent: Stream | None) -> None:
        cursor = Cursor(f"f{self.next_key}", found.path, found.path, found.file, head=head)
        self.next_key += 1
        stream = self.streams[cursor.key] = self._stream(cursor)
        stream.linked = True
        if parent is not None:
            cursor.parent = parent.cursor.key
            body.close()
            return
        stream.attach(body)
        self._changed = True
        if self.at_end and (self.first or found.file in self._unreadable):
            stream.start_at_end(body)
            self._close(stream)
        else:
            self._count_rotation(found)

    def _count_rotation(self, found: Found) -> None:
        if found.file in self._truncated:
            self._truncated.discard(found.file)
        elif any(s.cursor.origin == found.path for s in self.streams.values() if s.cursor.file != found.file):
            self.rotations["renamed"] += 1
        elif not self.first:
            self.rotations["new_file"] += 1

    def _compare(self, found: Found, body: Body) -> tuple[Likeness, Stream | None]:
        """How a file compares with the stream it is most like."""
        verdict = Likeness.OTHER
        for stream in self.streams.values():
            cursor = stream.cursor
            if cursor.parent or self.is_lost(stream) or cursor.file == found.file:
                continue
            if may_be_copy(found, cursor, linked=stream.linked):
                result = self._likeness(body, stream)
                if result in (Likeness.COPY, Likeness.LONGER):
                    return result, stream
                verdict = Likeness.UNSURE if result is Likeness.UNSURE else verdict
        return verdict, None

    def _likeness(self, body: Body, stream: Stream) -> Likeness:
        if not head_allows(body, stream.cursor):
            return Likeness.OTHER
        if stream.body is not None:
            return likeness(body, stream.cursor, stream.body)
        followed = self._open(self._known[stream.cursor.file])
        if followed is None:
            return Likeness.UNSURE
        try:
            return likeness(body, stream.cursor, followed)
        finally:
            followed.close()

    def _open(self, found: Found) -> Body | None:
        if self._open_count() >= _MOST_OPEN:
            return None
        try:
            return open_body(found.path, found.file)
        except FileNotFoundError:
            return None
        except OSError as error:
            note(self.problems, found.path, error)
            if self.first:
                self._unreadable.add(found.file)
            return None

    def _open_count(self) -> int:
        return sum(stream.body is not None for stream in self.streams.values())

    def _close(self, stream: Stream) -> None:
        found = self._known.get(stream.cursor.file)
        stream.detach()
        settled = found is not None and self.options.clock() - found.modified / 1e9 > _TICK_SECONDS
        stream.checked = (found.size, found.modified) if found is not None and settled else (-1, -1)

    def _refuse(self, mark: tuple[object, ...]) -> None:
        if len(self._refused) >= _MOST_REFUSALS:
            self._refused.clear()
        self._refused.add(mark)

    def _stream(self, cursor: Cursor) -> Stream:
        return Stream(cursor, self.options.max_line_bytes, self.options.block_bytes)
