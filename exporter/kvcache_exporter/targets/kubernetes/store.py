"""What is known of the objects of one collection: only their targets, and what is wrong with them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from kvcache_exporter.targets.base import DiscoveryError
from kvcache_exporter.targets.kubernetes.found import Found
from kvcache_exporter.targets.kubernetes.objects import Named

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one object comes to."""

    found: tuple[Found, ...] = ()
    problem: str = ""


class Store:
    """Written by one thread; `changed` is called when targets differ from before."""

    def __init__(
        self,
        find: Callable[[bytes], Sequence[Found]],
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """`failed` takes what is wrong with an object, once for as long as it is the same."""
        self._find = find
        self._changed = changed
        self._failed = failed
        self._entries: dict[Key, Entry] = {}

    def found(self) -> Iterator[Found]:
        for entry in self._entries.values():
            yield from entry.found

    @property
    def problems(self) -> list[str]:
        # A copy at once: the endpoints ask from threads of their own.
        return [entry.problem for entry in list(self._entries.values()) if entry.problem]

    def read(self, objects: Iterable[bytes]) -> dict[Key, Entry]:
        """What a page of a list comes to; raises msgspec.DecodeError if an object has no name."""
        entries = (self._read(data) for data in objects)
        return {key: entry for key, entry in entries if entry != _NOTHING}

    def replace(self, entries: dict[Key, Entry]) -> None:
        """These are all objects there are."""
        before, self._entries = self._entries, entries
        for key, entry in entries.items():
            if entry.problem and entry != before.get(key):
                self._failed(entry.problem)
        if _targets(before) != _targets(entries):
            self._changed()

    def put(self, data: bytes) -> None:
        """This object is new or has changed."""
        key, entry = self._read(data)
        before = self._entries.get(key, _NOTHING)
        # Without targets and problems there is nothing to remember.
        if entry == _NOTHING:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
        if entry.problem and entry.problem != before.problem:
            self._failed(entry.problem)
        if entry.found != before.found:
            self._changed()

    def drop(self, data: bytes) -> None:
        """This object is gone."""
        metadata = msgspec.json.decode(data, type=Named).metadata
        before = self._entries.pop((metadata.namespace, metadata.name), _NOTHING)
        if before.found:
            self._changed()

    def _read(self, data: bytes) -> tuple[Key, Entry]:
        metadata = msgspec.json.decode(data, type=Named).metadata
        key = (metadata.namespace, metadata.name)
        try:
            return key, Entry(tuple(self._find(data)))
        except DiscoveryError as error:
            problem = str(error)
        except msgspec.ValidationError as error:
            problem = f"the object is not understood: {error}"
        return key, Entry(problem=f"{metadata.namespace}/{metadata.name}: {problem}")


def _targets(entries: dict[Key, Entry]) -> dict[Key, tuple[Found, ...]]:
    return {key: entry.found for key, entry in entries.items() if entry.found}


_NOTHING = Entry()
