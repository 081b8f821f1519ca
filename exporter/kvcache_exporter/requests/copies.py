"""Tells whether a file is another log, or a copy of one that is being followed."""

from enum import Enum

from kvcache_exporter.requests.body import Body
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import TAIL_BYTES, related
from kvcache_exporter.requests.listing import Found


class Likeness(Enum):
    OTHER = "other"
    """Another log."""
    COPY = "copy"
    """All of it is in the followed file."""
    LONGER = "longer"
    """All of the followed file is in it, and more."""
    UNSURE = "unsure"
    """The followed file has been changed just now."""


def may_be_copy(found: Found, cursor: Cursor, linked: bool) -> bool:
    """Whether names allow that this file is a copy of the cursor's."""
    if linked and found.path == cursor.origin != cursor.path:
        # Renamed and created anew: the same first lines do not make it the same log.
        return False
    return related(found.path, cursor.path) or related(found.path, cursor.origin)


def head_allows(candidate: Body, cursor: Cursor) -> bool:
    """Whether the first bytes leave it open that this is a copy of the cursor's file."""
    head = candidate.head(cursor.head.size)
    return len(head) < cursor.head.size or cursor.head.matches(head)


def likeness(candidate: Body, cursor: Cursor, followed: Body) -> Likeness:
    """How `candidate`, whose head allows that it is a copy, compares with `followed`, the cursor's file."""
    head = candidate.head(cursor.head.size)
    if len(head) < cursor.head.size and followed.head(len(head)) != head:
        return _other(cursor, followed)
    if candidate.gz or followed.gz:
        return Likeness.COPY
    return _by_end(candidate, cursor, followed)


def _by_end(candidate: Body, cursor: Cursor, followed: Body) -> Likeness:
    # A copy never is longer than what it is made from, if it is measured first.
    size = candidate.stat().st_size
    followed_size = followed.stat().st_size
    end = min(size, followed_size)
    start = max(0, end - TAIL_BYTES)
    if candidate.read(start, end - start) != followed.read(start, end - start):
        return _other(cursor, followed)
    if size <= followed_size:
        return Likeness.COPY
    return Likeness.LONGER if candidate.covers(cursor) else _other(cursor, followed)


def _other(cursor: Cursor, followed: Body) -> Likeness:
    return Likeness.OTHER if followed.holds(cursor) else Likeness.UNSURE
