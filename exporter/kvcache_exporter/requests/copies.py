"""Decides whether a file is a log of its own, or a copy of one that is being followed."""

from collections.abc import Iterable
from enum import IntEnum

from kvcache_exporter.requests.body import Body
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import HEAD_BYTES, TAIL_BYTES, TELLING_BYTES, family, related
from kvcache_exporter.requests.listing import Disk, Found
from kvcache_exporter.requests.stream import Stream


class Likeness(IntEnum):
    """How a file relates to a followed one; a greater value takes precedence."""

    OTHER = 0
    """Another log."""
    LONGER = 1
    """It contains the whole followed file, and more."""
    UNSURE = 2
    """The followed file is changing at this moment."""
    COPY = 3
    """The followed file contains all of it."""


class Relatives:
    """Finds the stream that a file resembles most, among those with related names."""

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._families: dict[tuple[str, str], dict[str, Stream]] = {}
        for stream in streams:
            self.add(stream)

    def add(self, stream: Stream) -> None:
        for path in (stream.cursor.path, stream.cursor.origin):
            self._families.setdefault(family(path), {})[stream.cursor.key] = stream

    def most_like(self, found: Found, body: Body, disk: Disk) -> tuple[Likeness, Stream | None]:
        """The best match; streams that lost their file, and copies, are not considered."""
        best: tuple[Likeness, Stream | None] = Likeness.OTHER, None
        streams = self._families.get(family(found.path), {}).values()
        for stream in sorted(streams, key=lambda stream: stream.cursor.position):
            if _may_be_copy(found, stream):
                verdict = _compare(body, stream, disk)
                if verdict is not Likeness.OTHER and verdict >= best[0]:
                    best = verdict, stream
        return best


def _may_be_copy(found: Found, stream: Stream) -> bool:
    cursor = stream.cursor
    if cursor.parent or stream.is_lost or cursor.file == found.file:
        return False
    if stream.linked and found.path == cursor.origin != cursor.path:
        # Renamed and created again: the same first lines do not make it the same log.
        return False
    return related(found.path, cursor.path) or related(found.path, cursor.origin)


def _compare(candidate: Body, stream: Stream, disk: Disk) -> Likeness:
    if not _head_allows(candidate, stream.cursor):
        return Likeness.OTHER
    if stream.body is not None:
        return likeness(candidate, stream.cursor, stream.body)
    found = disk.known.get(stream.cursor.file)
    followed = None if found is None else disk.open(found)
    if followed is None:
        return Likeness.UNSURE
    try:
        return likeness(candidate, stream.cursor, followed)
    finally:
        followed.close()


def _head_allows(candidate: Body, cursor: Cursor) -> bool:
    """Whether, by its first bytes, this may be a copy of the cursor's file."""
    head = candidate.head(cursor.head.size)
    return len(head) < cursor.head.size or cursor.head.matches(head)


def likeness(candidate: Body, cursor: Cursor, followed: Body) -> Likeness:
    """Compares `candidate`, which by its head may be a copy, with `followed`, the cursor's file."""
    # Measured first, as a copy is never longer than its original.
    size, followed_size = _size(candidate), _size(followed)
    end = min(size, followed_size)
    start = max(0, end - TAIL_BYTES)
    same = candidate.head(min(end, HEAD_BYTES)) == followed.head(min(end, HEAD_BYTES)) and candidate.read(
        start, end - start
    ) == followed.read(start, end - start)
    if same and size <= followed_size:
        return Likeness.COPY
    if same and _tells(followed) and candidate.covers(cursor):
        return Likeness.LONGER
    return Likeness.OTHER if followed.holds(cursor) else Likeness.UNSURE


def _tells(body: Body) -> bool:
    """Whether the file is long enough to recognise: lines often begin alike."""
    head = body.head()
    return len(head) >= TELLING_BYTES or b"\n" in head


def _size(body: Body) -> int:
    # Not worth decompressing everything: the first kilobyte and related names identify a copy.
    return len(body.head()) if body.gz else body.stat().st_size
