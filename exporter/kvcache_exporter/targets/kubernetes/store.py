"""The known objects of one collection: only their targets and problems."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from kvcache_exporter.targets.base import DiscoveryError
from kvcache_exporter.targets.kubernetes.found import Found
from kvcache_exporter.targets.kubernetes.objects import Named

SHOWN_PROBLEMS = 20
"""A selector that takes in a whole cluster is not to fill the log."""
Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The targets or the problem of one object."""

    found: tuple[Found, ...] = ()
    problem: str = ""


class Store:
    """Written by one thread; `changed` is called when the targets change."""

    def __init__(
        self,
        find: Callable[[bytes], Sequence[Found]],
        changed: Callable[[], None],
        failed: Callable[[str, int], None],
    ) -> None:
        """`failed` takes a problem, once for as long as it stays the same, and the number of its objects."""
        self._find = find
        self._changed = changed
        self._failed = failed
        self._entries: dict[Key, Entry] = {}

    def found(self) -> Iterator[Found]:
        for entry in self._entries.values():
            yield from entry.found

    @property
    def problems(self) -> list[str]:
        # Copied in one step: the web endpoints read from other threads.
        return [entry.problem for entry in list(self._entries.values()) if entry.problem]

    def read(self, objects: Iterable[bytes]) -> dict[Key, Entry]:
        """The entries of a page of a list; raises msgspec.DecodeError if an object has no name."""
        entries = (self._read(data) for data in objects)
        return {key: entry for key, entry in entries if entry != _NOTHING}

    def replace(self, entries: dict[Key, Entry]) -> None:
        """Replace all objects."""
        before, self._entries = self._entries, entries
        new = [entry.problem for key, entry in entries.items() if entry.problem and entry != before.get(key)]
        for problem in new[:SHOWN_PROBLEMS]:
            self._failed(problem, 1)
        more = len(new) - SHOWN_PROBLEMS
        if more > 0:
            self._failed(f"{more} more objects cannot be used; narrow the selector", more)
        if _targets(before) != _targets(entries):
            self._changed()

    def put(self, data: bytes) -> None:
        """Add or update an object."""
        key, entry = self._read(data)
        before = self._entries.get(key, _NOTHING)
        # An object without targets and problems need not be kept.
        if entry == _NOTHING:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
        if entry.problem and entry.problem != before.problem:
            self._failed(entry.problem, 1)
        if entry.found != before.found:
            self._changed()

    def drop(self, data: bytes) -> None:
        """Remove an object."""
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
