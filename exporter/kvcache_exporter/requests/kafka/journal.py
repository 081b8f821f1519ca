"""The state file's part in counting Kafka messages: positions and counters, staged until they are claimed."""

import secrets
import threading
from collections.abc import Iterable, Mapping

import msgspec

from kvcache_exporter.errors import START_OVER, KVCacheError, StateError
from kvcache_exporter.requests.books import Books, Key
from kvcache_exporter.requests.kafka.inbox import Inbox
from kvcache_exporter.state import StateStore

_SELF = "self"
_BATCH = "batch"


class _Self(msgspec.Struct):
    owner: str
    partitions: dict[str, int] = {}
    """Partitions that each topic had when it was first seen; 0 if it did not exist."""


class Staged(msgspec.Struct):
    """The result of a batch of which it is not yet known whether it was claimed."""

    ends: dict[str, int]
    """Offset behind the batch by partition."""
    puts: list[tuple[Key, bytes]]
    deletes: list[Key]


class Journal:
    """`stage` a batch, claim it, then `finish`; after a crash, ask whether it was claimed, then `resolve`.

    Between `stage` and `finish` the counters in the state file are those before the batch.
    """

    def __init__(self, name: str, books: Books, store: StateStore) -> None:
        self._books, self._store = books, store
        self._space, self._staging = f"kafka/{name}", f"staged/{name}"
        self.inbox = Inbox(name, store)
        self.positions: dict[str, int] = {}
        """Offset of the next message by partition, as `topic/number`."""
        self.staged: Staged | None = None
        self._closing = threading.Lock()
        self._closed = False
        self.load()

    def load(self) -> None:
        """Return to what the state file holds, counters included; raises StateError if it is unreadable."""
        self._books.rollback()
        self.inbox.load()
        saved = self._store.load(self._space)
        staged = self._store.load(self._staging).get(_BATCH)
        try:
            me = saved.pop(_SELF, None)
            self._self = msgspec.msgpack.decode(me, type=_Self) if me else _Self(secrets.token_hex(4))
            self.positions = {key: int(value) for key, value in saved.items()}
            self.staged = msgspec.msgpack.decode(staged, type=Staged) if staged else None
        except (ValueError, msgspec.DecodeError) as error:
            raise StateError(
                f"the saved positions of a Kafka source cannot be read ({error}); {START_OVER}"
            ) from error

    @property
    def owner(self) -> str:
        """This exporter's name in claims; it stays the same as long as the state file does."""
        return self._self.owner

    @property
    def partitions(self) -> Mapping[str, int]:
        """Partitions that each topic had when it was first seen."""
        return self._self.partitions

    def note_partitions(self, found: Mapping[str, int]) -> None:
        known = _Self(self.owner, {**self.partitions, **found})
        self._write({(self._space, _SELF): msgspec.msgpack.encode(known)})
        self._self = known

    def stage(self, ends: Mapping[str, int]) -> None:
        """Save what was counted since the last `finish` beside the counters, safe from a power failure."""
        puts, deletes = self._books.changes()
        deletes = [*deletes, *self.inbox.deletes]
        puts |= {(self._space, key): b"%d" % end for key, end in ends.items()}
        staged = Staged(dict(ends), list(puts.items()), deletes)
        self._write({(self._staging, _BATCH): msgspec.msgpack.encode(staged)}, durable=True)
        self.staged = staged

    def finish(self) -> None:
        """The staged batch was claimed: add it to the counters."""
        if self.staged is not None:
            self._write(dict(self.staged.puts), [*self.staged.deletes, (self._staging, _BATCH)])
            self.positions.update(self.staged.ends)
            self.staged = None
            self._books.committed()
            self.inbox.counted()

    def count_spans(self, now: float) -> bool:
        """Count spans with the current batch, and halves that waited long enough; False if none."""
        if self.staged is not None:
            return False  # of an earlier session: not known yet whether it counts
        spans = self.inbox.take()
        self._books.add_spans(spans, now)
        return self._books.expire(now) or bool(spans)

    def resolve(self, *, claimed: bool) -> None:
        """Apply what was staged before a crash, or drop it, as another exporter reads its messages again."""
        if claimed:
            self.finish()
        else:
            self._write({}, [(self._staging, _BATCH)])
        self.load()

    def close(self) -> None:
        """Refuse to write from now on."""
        with self._closing:
            self._closed = True

    def _write(
        self, puts: Mapping[Key, bytes], deletes: Iterable[Key] = (), *, durable: bool = False
    ) -> None:
        with self._closing:
            if self._closed:
                raise KVCacheError("the source is closed")
            self._store.commit(puts, deletes, durable=durable)
