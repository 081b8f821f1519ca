"""Spans for a source that reads Kafka: acknowledged as soon as they are safe, counted with its next batch."""

import threading
from collections.abc import Iterable

import msgspec

from kvcache_exporter.errors import START_OVER, StateError
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.books import Key
from kvcache_exporter.state import StateStore

MOST = 50_000
"""Spans that wait while no messages can be read; senders keep further ones."""


class Inbox:
    """`add` may be called by any thread, everything else by that of the source.

    A batch of messages may turn out void, and what was counted with it then counts again: so spans stay in
    the state file until the transaction that counts them takes them out.
    """

    def __init__(self, name: str, store: StateStore) -> None:
        """Raises StateError where what waits cannot be read."""
        self._store, self._space = store, f"spans/{name}"
        self._lock = threading.Lock()
        self._unsaved: list[RequestRecord] = []
        self._taken: list[str] = []
        self._next = 0
        self.load()

    @property
    def is_full(self) -> bool:
        return len(self._waiting) + len(self._unsaved) >= MOST

    def add(self, records: Iterable[RequestRecord]) -> None:
        """When this returns they are on the disk. Raises StateError, and keeps them for the next call."""
        with self._lock:
            self._unsaved += records
            named = {f"{self._next + i:019d}": record for i, record in enumerate(self._unsaved)}
            if named:
                puts = {(self._space, key): msgspec.msgpack.encode(record) for key, record in named.items()}
                self._store.commit(puts, durable=True)
                self._waiting |= named
                self._next += len(named)
                self._unsaved = []

    def take(self) -> list[RequestRecord]:
        """What has come since the last taking, to be counted in the batch at hand."""
        with self._lock:
            new = self._waiting.keys() - set(self._taken)
            self._taken += sorted(new)
            return [self._waiting[key] for key in sorted(new)]

    @property
    def deletes(self) -> list[Key]:
        """What the transaction that counts the batch deletes."""
        return [(self._space, key) for key in self._taken]

    def counted(self) -> None:
        """That transaction is in the state file."""
        with self._lock:
            for key in self._taken:
                self._waiting.pop(key, None)
            self._taken = []

    def load(self) -> None:
        """Be what the state file holds: nothing of it was counted. Raises StateError."""
        with self._lock:
            try:
                saved = sorted(self._store.load(self._space).items())
                self._waiting = {key: msgspec.msgpack.decode(data, type=RequestRecord) for key, data in saved}
                self._next = max([self._next, *(int(key) + 1 for key in self._waiting)])
            except (ValueError, msgspec.DecodeError) as error:
                raise StateError(
                    f"the saved spans that wait for a Kafka source cannot be read ({error}); {START_OVER}"
                ) from error
            self._taken = []
