"""Finds the new place of a stream whose file is gone, and decides whether a copy is read or ignored."""

from kvcache_exporter.requests.body import Body
from kvcache_exporter.requests.copies import Likeness, Relatives
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import NOWHERE, related
from kvcache_exporter.requests.listing import Disk, Found
from kvcache_exporter.requests.options import FollowOptions
from kvcache_exporter.requests.stream import Stream

_MOST_REFUSALS = 10_000


class Recovery:
    """Works on a tracker's streams: moves them to other files, starts to read them, or removes them."""

    def __init__(self, streams: dict[str, Stream], disk: Disk, options: FollowOptions) -> None:
        self._streams = streams
        self._disk = disk
        self._options = options
        self._relatives = Relatives(())
        self._refused: set[tuple[object, ...]] = set()
        self._changed = False

    def run(self, relatives: Relatives, now: float) -> bool:
        """Whether anything changed."""
        self._relatives, self._changed = relatives, False
        lost = [stream for stream in self._streams.values() if stream.is_lost]
        # Lost streams before the copies they may continue in; the one read furthest identifies its file best.
        for stream in sorted(lost, key=lambda s: (bool(s.cursor.parent), -s.cursor.position)):
            self._find_again(stream, now)
        for stream in [s for s in self._streams.values() if s.cursor.parent]:
            self._review(stream)
        return self._changed

    def _find_again(self, stream: Stream, now: float) -> None:
        """Look for a copy of a stream that has lost its file, and continue there."""
        cursor = stream.cursor
        cursor.gone = cursor.gone or now
        if not cursor.tells or now - cursor.gone > self._options.forget_seconds:
            del self._streams[cursor.key]
            return
        for found in self._candidates(cursor):
            mark = (cursor.key, cursor.position, *found)
            if mark not in self._refused and (body := self._disk.open(found)) is not None:
                if body.covers(cursor):
                    if self._is_free(found, body, cursor):
                        self._move(stream, body, found)
                        return
                else:
                    self._refuse(mark)
                body.close()

    def _is_free(self, found: Found, body: Body, cursor: Cursor) -> bool:
        """Whether no stream that still has its file matches this one better."""
        if cursor.parent:
            return True
        verdict, other = self._relatives.most_like(found, body, self._disk)
        if verdict is Likeness.LONGER and other is not None:
            return other.cursor.position < cursor.position
        return verdict is Likeness.OTHER

    def _candidates(self, cursor: Cursor) -> list[Found]:
        copies = {s.cursor.file for s in self._streams.values() if s.cursor.parent}
        taken = {s.cursor.file for s in self._streams.values() if cursor.parent or not s.cursor.parent}
        candidates = [
            found
            for file, found in self._disk.known.items()
            if file not in taken
            # Nothing was read of the stream: a copy that is read from its start anyway replaces it.
            and (
                cursor.position > 0 or (file not in self._disk.matched and found.modified >= cursor.modified)
            )
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
        for copy in [s for s in self._streams.values() if s.cursor.parent and s.cursor.file == found.file]:
            del self._streams[copy.cursor.key]
        stream.attach(body)

    def replace(self, stream: Stream, body: Body, found: Found) -> None:
        """Continue in the original when the stream's file turns out to be a copy of it."""
        self._move(stream, body, found)
        stream.cursor.origin = found.path

    def _review(self, copy: Stream) -> None:
        """Check that a copy still is one; if not, read it as a log."""
        cursor = copy.cursor
        found = self._disk.known.get(cursor.file)
        body = None if found is None else self._disk.open(found)
        if found is None or (body is None and not found.is_shorter_than(cursor)):
            return
        original = self._streams.get(cursor.parent)
        if body is None or not body.holds(cursor):
            if body is not None:
                body.close()
            cursor.file, copy.linked = NOWHERE, False
            self._changed = True
        elif original is None or original.is_lost:
            self._orphan(copy, original, body)
        else:
            self._reconsider(copy, found, body)

    def _reconsider(self, copy: Stream, found: Found, body: Body) -> None:
        cursor = copy.cursor
        verdict, parent = self._relatives.most_like(found, body, self._disk)
        if verdict is Likeness.OTHER:
            self._release(copy, body, passed=False)
        elif verdict is Likeness.LONGER and parent is not None:
            self.replace(parent, body, found)
        else:
            cursor.parent = parent.cursor.key if parent is not None else cursor.parent
            copy.note_size(body)
            body.close()

    def _orphan(self, copy: Stream, original: Stream | None, body: Body) -> None:
        """The original is lost and was read further than this copy reaches."""
        gone = 0.0 if original is None or original.cursor.file == NOWHERE else original.cursor.gone
        if self._options.clock() - gone <= self._options.linger_seconds:
            # It may be in the middle of a rename.
            body.close()
        else:
            self._release(copy, body, passed=original is None or original.cursor.position > 0)

    def _release(self, copy: Stream, body: Body, *, passed: bool) -> None:
        copy.cursor.parent = ""
        copy.attach(body)
        if passed:
            copy.start_at_size(body)
        else:
            copy.start_over(body)
        self._changed = True

    def _refuse(self, mark: tuple[object, ...]) -> None:
        if len(self._refused) >= _MOST_REFUSALS:
            self._refused.clear()
        self._refused.add(mark)
