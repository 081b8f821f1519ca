"""Keeps streams of lines and files together while these are rotated, copied, truncated and removed."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, KeysView, Sequence
from dataclasses import dataclass

from kvcache_exporter.requests.body import Body, open_body
from kvcache_exporter.requests.copies import Likeness, head_allows, likeness, may_be_copy
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import NOWHERE, FileId, Print, folder_of, related
from kvcache_exporter.requests.listing import Found, matched_files, neighbours, note
from kvcache_exporter.requests.stream import Stream

_ROUNDS = 5
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
        self._matched: KeysView[FileId] = self._known.keys()
        self._taken: set[FileId] = set()
        self._counted: set[FileId] = set()
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
        self._known, self._matched = others | matched, matched.keys()
        for stream in list(self.streams.values()):
            if stream.cursor.key in self.streams:
                self._locate(stream, now)
        lost = [stream for stream in self.streams.values() if self.is_lost(stream)]
        for stream in sorted(lost, key=lambda s: (bool(s.cursor.parent), -s.cursor.position)):
            self._find_again(stream, now)
        for stream in [s for s in self.streams.values() if s.cursor.parent]:
            self._review(stream)
        if self._changed:
            # What lost its file may be found in one that looks new.
            return
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
        body = self._open(found)
        fresh = found.file in self._matched and stream.cursor.position == 0
        if body is not None and fresh and body.holds(stream.cursor):
            # Nothing was read yet, so this may as well be another file with a used inode, or a copy.
            body.close()
            self._counted.add(found.file)
            self._drop(stream)
        elif body is not None:
            stream.attach(body)
            self._changed = True
        elif found.size < 2 and found.size < max(stream.cursor.position, stream.cursor.head.size):
            self._cut(stream)

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

    def _find_again(self, stream: Stream, now: float) -> None:
        """Look for a copy of a stream that has lost its file, and go on there."""
        cursor = stream.cursor
        cursor.gone = cursor.gone or now
        if not cursor.tells or now - cursor.gone > self.options.forget_seconds:
            del self.streams[cursor.key]
            return
        for found in self._candidates(cursor):
            mark = (cursor.key, cursor.position, *found)
            if mark not in self._refused and (body := self._open(found)) is not None:
                if body.covers(cursor):
                    if self._is_free(found, body, cursor):
                        self._move(stream, body, found)
                        return
                else:
                    self._refuse(mark)
                body.close()

    def _is_free(self, found: Found, body: Body, cursor: Cursor) -> bool:
        """Whether no stream that still has its file goes better with this one."""
        if cursor.parent:
            return True
        verdict, other = self._compare(found, body)
        if verdict is Likeness.LONGER and other is not None:
            return other.cursor.position < cursor.position
        return verdict is Likeness.OTHER

    def _candidates(self, cursor: Cursor) -> list[Found]:
        copies = {s.cursor.file for s in self.streams.values() if s.cursor.parent}
        taken = {s.cursor.file for s in self.streams.values() if cursor.parent or not s.cursor.parent}
        candidates = [
            found
            for file, found in self._known.items()
            if file not in taken
            # Of what was not read at all, a copy that is read anyway needs no place to go on from.
            and not (file in self._matched and cursor.position == 0)
            and (file in self._matched or file in copies or found.modified >= cursor.modified)
            and (related(found.path, cursor.path) or related(found.path, cursor.origin))
        ]
        return sorted(candidates, key=lambda found: (found.file in copies, found.modified), reverse=True)

    def _move(self, stream: Stream, body: Body, found: Found) -> None:
        stream.cursor.path, stream.cursor.gone, stream.linked = found.path, 0.0, True
        self._changed = True
        if stream.cursor.parent:
            stream.cursor.file = found.file
            body.close()
            return
        for copy in [s for s in self.streams.values() if s.cursor.parent and s.cursor.file == found.file]:
            del self.streams[copy.cursor.key]
        stream.attach(body)

    def _replace(self, stream: Stream, body: Body, found: Found) -> None:
        """Go on in the file of which the stream's own turns out to be a copy."""
        self._move(stream, body, found)
        stream.cursor.origin = found.path

    def _review(self, copy: Stream) -> None:
        """Look whether a copy still is one; if not, it is a log of its own."""
        cursor = copy.cursor
        found = self._known.get(cursor.file)
        body = None if found is None else self._open(found)
        if found is None or body is None:
            return
        original = self.streams.get(cursor.parent)
        if not body.holds(cursor):
            body.close()
            cursor.file, copy.linked = NOWHERE, False
            self._changed = True
        elif original is None or self.is_lost(original):
            self._orphan(copy, original, body)
        else:
            self._reconsider(copy, found, body)

    def _reconsider(self, copy: Stream, found: Found, body: Body) -> None:
        cursor = copy.cursor
        verdict, parent = self._compare(found, body)
        if verdict is Likeness.OTHER:
            self._release(copy, body, passed=False)
        elif verdict is Likeness.LONGER and parent is not None:
            self._replace(parent, body, found)
        else:
            cursor.parent = parent.cursor.key if parent is not None else cursor.parent
            copy.note_size(body)
            body.close()

    def _orphan(self, copy: Stream, original: Stream | None, body: Body) -> None:
        """The copied stream is lost and was read further than this copy goes."""
        gone = 0.0 if original is None or original.cursor.file == NOWHERE else original.cursor.gone
        if self.options.clock() - gone <= self.options.linger_seconds:
            # It may be on its way to another name.
            body.close()
        else:
            self._release(copy, body, passed=original is None or original.cursor.position > 0)

    def _release(self, copy: Stream, body: Body, *, passed: bool) -> None:
        copy.cursor.parent = ""
        copy.attach(body)
        if passed:
            copy.start_at_size(body)
        else:
            copy.start_anew(body)
        self._changed = True

    def _classify(self, found: Found) -> None:
        body = self._open(found)
        if body is None:
            return
        verdict, parent = self._compare(found, body)
        head = Print.of(body.head())
        if verdict is Likeness.LONGER and parent is not None:
            self._replace(parent, body, found)
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
            stream.note_size(body)
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
        if found.file in self._counted:
            self._counted.discard(found.file)
        elif any(s.cursor.origin == found.path for s in self.streams.values() if s.cursor.file != found.file):
            self.rotations["renamed"] += 1
        elif not self.first:
            self.rotations["new_file"] += 1

    def _compare(self, found: Found, body: Body) -> tuple[Likeness, Stream | None]:
        """How a file compares with the stream it is most like."""
        best: tuple[Likeness, Stream | None] = Likeness.OTHER, None
        for stream in sorted(self.streams.values(), key=lambda stream: stream.cursor.position):
            cursor = stream.cursor
            if cursor.parent or self.is_lost(stream) or cursor.file == found.file:
                continue
            if may_be_copy(found, cursor, linked=stream.linked):
                verdict = self._likeness(body, stream)
                if verdict is not Likeness.OTHER and verdict >= best[0]:
                    best = verdict, stream
        return best

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
