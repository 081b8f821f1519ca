"""Splits blocks of bytes into lines."""

from typing import NamedTuple

import msgspec

_NEWLINE = 10


class Batch(NamedTuple):
    """The result of one read; counts exclude what was counted before a restart."""

    records: list[bytes]
    lines: int
    too_long: int
    size: int
    """Bytes of content that were read."""


def split_lines(window: bytes, known: int, end: int) -> list[bytes]:
    """The lines between `known` and `end`, the position after the last newline."""
    if known and window[known - 1] != _NEWLINE:
        return window[known : end - 1].split(b"\n")
    # Copying the block before splitting it would cost as much as splitting it.
    lines = window.split(b"\n")
    lines.pop()
    del lines[: window.count(b"\n", 0, known)]
    return lines


def is_whole_json(rest: bytes) -> bool:
    text = rest.strip()
    if not text.startswith((b"{", b"[")) or not text.endswith((b"}", b"]")):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
