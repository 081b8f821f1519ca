"""Ids of counted requests, for formats that write a request more than once.

One window serves all files of a source: agents copy lines of an old session into the file of the new one.
"""

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from kvcache_exporter.errors import START_OVER, StateError

_SEGMENT = 1024
_SEGMENTS = 128


class Seen:
    """Remembers the last 131,072 ids as 64-bit hashes, in about 10 MB.

    They are saved in segments, so that a busy source does not write all of them with every commit.
    """

    def __init__(self) -> None:
        self._segments: dict[int, list[int]] = {}
        self._known: set[int] = set()
        self._changed: set[int] = set()
        self._dropped: set[int] = set()

    def add(self, kind: str, request_id: str) -> bool:
        """Add an id and return whether it is new; `kind` keeps the ids of different formats apart."""
        digest = _digest(kind, request_id)
        if digest in self._known:
            return False
        self._known.add(digest)
        number = self._open_segment()
        self._segments[number].append(digest)
        self._changed.add(number)
        return True

    def has(self, kind: str, request_id: str) -> bool:
        return _digest(kind, request_id) in self._known

    def _open_segment(self) -> int:
        number = max(self._segments, default=0)
        if len(self._segments.get(number, ())) >= _SEGMENT:
            number += 1
        self._segments.setdefault(number, [])
        if len(self._segments) > _SEGMENTS:
            oldest = min(self._segments)
            self._known.difference_update(self._segments.pop(oldest))
            self._changed.discard(oldest)
            self._dropped.add(oldest)
        return number

    def __len__(self) -> int:
        return len(self._known)

    def changes(self) -> tuple[dict[str, bytes], set[str]]:
        """Bytes by key to put into the state file, and keys to delete from it, since `committed`."""
        puts = {str(number): msgspec.msgpack.encode(self._segments[number]) for number in self._changed}
        return puts, set(map(str, self._dropped))

    def committed(self) -> None:
        """Confirm that the state file holds what `changes` last returned."""
        self._changed.clear()
        self._dropped.clear()

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Raises StateError if `changes` did not write this."""
        try:
            for key, data in saved.items():
                self._segments[int(key)] = msgspec.msgpack.decode(data, type=list[int])
        except (ValueError, msgspec.DecodeError) as error:
            raise StateError(
                f"the saved ids of counted requests cannot be read ({error}); {START_OVER}"
            ) from error
        self._known.update(*self._segments.values())


def _digest(kind: str, request_id: str) -> int:
    return int.from_bytes(blake2b(f"{kind}\0{request_id}".encode(), digest_size=8).digest())
