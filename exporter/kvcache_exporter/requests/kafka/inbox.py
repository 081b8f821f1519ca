"""Spans for a Kafka source: acknowledged when they are on disk, counted with its next batch."""

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
        """Raises StateError if the saved spans cannot be read."""
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
        """Save spans; they are on disk when this returns. After a StateError the next call saves them."""
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
        """The spans since the last call, to be counted in the current batch."""
        with self._lock:
            new = sorted(self._waiting.keys() - set(self._taken))
            self._taken += new
            return [self._waiting[key] for key in new]

    @property
    def deletes(self) -> list[Key]:
        """Keys to delete in the transaction that counts the batch."""
        return [(self._space, key) for key in self._taken]

    def counted(self) -> None:
        """Confirm that this transaction is in the state file."""
        with self._lock:
            for key in self._taken:
                self._waiting.pop(key, None)
            self._taken = []

    def load(self) -> None:
        """Return to the spans in the state file, none of which was counted. Raises StateError."""
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
