"""Follows the log files of one source and delivers each complete line exactly once, across restarts.

Call, from one thread:

1. `saved = store.load(namespace)`; restore counters and decoders from the same commit; then
   `Follower(paths, start_at, saved)`.
2. Repeatedly: for each chunk of `poll(budget)`, decode and count it completely.
3. At any time between two chunks or after a poll: `puts, deletes = positions()`, commit them in ONE
   transaction with counters and decoder snapshots, then `committed()`.
4. `close()`.

A chunk counts as read once it is delivered, so never ask for positions while a chunk is half counted. After a
crash, everything since the last commit is delivered again, and nothing else.

If the patterns match rotated files too (`app.log*`), any number of rotations between two polls, or while the
exporter is down, loses nothing, and a rotated file is still counted only once. With `app.log` alone, the file
that was last read is found under its new name, but files that came and went in between are missed.
"""

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from kvcache_exporter.errors import START_OVER, StateError
from kvcache_exporter.requests.cursor import FIELDS, Cursor
from kvcache_exporter.requests.follow import Tracker
from kvcache_exporter.requests.lines import Batch
from kvcache_exporter.requests.options import FollowOptions
from kvcache_exporter.requests.stream import Stream

_SELF = "follower"
_values = attrgetter(*FIELDS)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Log records of one file, in order, without their framing."""

    file_key: str
    """Identifies the log, not the file: stays the same when it is renamed, copied or gzipped."""
    path: str
    lines: list[bytes]
    line_count: int = 0
    """Complete lines in the file; records may span several of them."""
    too_long: int = 0
    """Lines that were longer than allowed and dropped."""
    finished: bool = False
    """Whether the file is at its end and seems idle: flush its decoder. More lines may still come."""


@dataclass(slots=True)
class Counters:
    """Totals since the source was first followed; kept with the positions."""

    lines: int = 0
    too_long: int = 0
    rotations: Counter[str] = field(default_factory=Counter)
    """By kind: renamed, truncated, new_file."""


class Follower:
    def __init__(
        self,
        paths: Sequence[str],
        start_at: Literal["beginning", "end"],
        saved: Mapping[str, bytes],
        options: FollowOptions | None = None,
    ) -> None:
        """`paths` may be patterns and need not exist; `saved` is what was committed last, {} at first.

        Raises StateError if `saved` cannot be read.
        """
        self._options = options or FollowOptions()
        cursors = [Cursor.decode(value) for key, value in saved.items() if key != _SELF]
        self._tracker = Tracker(paths, cursors, self._options)
        self.counters = Counters()
        self._tracker.first = _SELF not in saved
        self._tracker.at_end = start_at == "end"
        if _SELF in saved:
            self._restore(saved[_SELF])
        self._saved = dict(saved)
        self._encoded: dict[str, tuple[tuple[object, ...], bytes]] = {}
        self._next_key = ""
        self._offered: tuple[dict[str, bytes], set[str]] = ({}, set())

    def poll(self, budget_bytes: int) -> Iterator[Chunk]:
        """Look at all files once, then deliver what is new in them, up to about `budget_bytes`."""
        self._tracker.scan()
        self.counters.rotations.update(self._tracker.rotations)
        self._tracker.rotations.clear()
        yield from self._read(budget_bytes)
        yield from self._settle()
        yield from self._finish()
        self._tracker.tidy()

    def positions(self) -> tuple[dict[str, bytes], set[str]]:
        """What to put into and delete from the saved state, to resume after the chunks delivered so far.

        Includes all changes since the last `committed()`: after a failed commit, simply try again.
        """
        current = {_SELF: self._encode_self()}
        for key, stream in self._tracker.streams.items():
            current[key] = self._encode(key, stream.cursor)
        puts = {key: value for key, value in current.items() if self._saved.get(key) != value}
        self._offered = puts, self._saved.keys() - current.keys()
        return self._offered

    def committed(self) -> None:
        """Confirm that the state file holds what `positions()` last returned."""
        puts, deletes = self._offered
        self._saved.update(puts)
        for key in deletes:
            self._saved.pop(key, None)
            self._encoded.pop(key, None)
        self._offered = ({}, set())

    @property
    def lag_bytes(self) -> int:
        """Bytes in the followed files that are not read yet, as of the last poll."""
        return sum(stream.lag for stream in self._tracker.streams.values() if not stream.cursor.parent)

    @property
    def problems(self) -> list[str]:
        """What could not be read at the last poll and why; empty when all is well."""
        return sorted(self._tracker.disk.problems.values())

    def close(self) -> None:
        for stream in self._tracker.streams.values():
            stream.detach()

    def _read(self, budget: int) -> Iterator[Chunk]:
        waiting = deque(self._streams())
        keys = [stream.cursor.key for stream in waiting]
        # Resume where the budget ran out, so that busy files cannot starve the others.
        waiting.rotate(-keys.index(self._next_key) if self._next_key in keys else 0)
        while waiting and budget > 0:
            stream = waiting.popleft()
            batch = stream.take()
            if batch is None:
                continue
            budget -= batch.size
            waiting.append(stream)
            self._next_key = waiting[0].cursor.key
            yield from self._chunk(stream, batch)
        if not waiting:
            self._next_key = ""

    def _settle(self) -> Iterator[Chunk]:
        now = self._options.clock()
        for stream in self._streams():
            if stream.drained and now - stream.active >= self._options.settle_seconds:
                batch = stream.settle()
                if batch is not None:
                    yield from self._chunk(stream, batch)

    def _finish(self) -> Iterator[Chunk]:
        now = self._options.clock()
        for stream in self._streams():
            cursor = stream.cursor
            if not cursor.open or not stream.drained:
                continue
            rotated = not stream.linked or cursor.path != cursor.origin
            patience = self._options.linger_seconds if rotated else self._options.idle_seconds
            if now - stream.active >= patience:
                cursor.open = False
                yield Chunk(cursor.key, cursor.path, [], finished=True)

    def _streams(self) -> list[Stream]:
        return [stream for stream in self._tracker.streams.values() if not stream.cursor.parent]

    def _chunk(self, stream: Stream, batch: Batch) -> Iterator[Chunk]:
        self.counters.lines += batch.lines
        self.counters.too_long += batch.too_long
        if batch.records or batch.lines or batch.too_long:
            cursor = stream.cursor
            yield Chunk(cursor.key, cursor.path, batch.records, batch.lines, batch.too_long)

    def _encode(self, key: str, cursor: Cursor) -> bytes:
        values = _values(cursor)
        before, encoded = self._encoded.get(key, ((), b""))
        if before != values:
            encoded = cursor.encode()
            self._encoded[key] = values, encoded
        return encoded

    def _encode_self(self) -> bytes:
        counters = self.counters
        return json.dumps(
            {
                "next_key": self._tracker.next_key,
                "lines": counters.lines,
                "too_long": counters.too_long,
                "rotations": dict(counters.rotations),
            }
        ).encode()

    def _restore(self, value: bytes) -> None:
        try:
            own = json.loads(value)
            self._tracker.next_key = int(own["next_key"])
            self.counters = Counters(int(own["lines"]), int(own["too_long"]), Counter(own["rotations"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StateError(
                f"the saved state of a log source cannot be read ({error}); {START_OVER}"
            ) from error
