"""Walks the protobuf wire format without decoding it, so that a large message is read piece by piece."""

from collections.abc import Iterator

from kvcache_exporter.requests.otlp.errors import MalformedError, TooManyError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class Walk:
    """One walk over a message and its embedded ones, of at most `most_fields` fields in all."""

    def __init__(self, most_fields: int) -> None:
        self._left = most_fields

    def embedded(self, message: memoryview, number: int) -> Iterator[memoryview]:
        """The content of each length-delimited field of this number.

        Raises MalformedError if it is not a message, and TooManyError.
        """
        at, end = 0, len(message)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise TooManyError("it has too many fields")
            tag, at = _varint(message, at)
            kind, size = tag & 7, 0
            if kind == _VARINT:
                _, at = _varint(message, at)
            elif kind == _BYTES:
                size, at = _varint(message, at)
            elif kind in {_FIXED64, _FIXED32}:
                size = 8 if kind == _FIXED64 else 4
            else:
                raise MalformedError("it has groups, which OTLP does not use")
            if at + size > end:
                raise MalformedError("it is cut off")
            if tag == number << 3 | _BYTES:
                yield message[at : at + size]
            at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number at offset `at`, and the offset behind it."""
    value = 0
    for count, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise MalformedError("a number does not end")
