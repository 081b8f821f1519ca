"""Follows the log files of one source, so that each complete line is given exactly once, whatever happens.

The order of calls, all from one thread:

1. `saved = store.load(namespace)`, restore your own counters and decoders from the same commit, then
   `Follower(paths, start_at, saved)`.
2. Again and again: for each chunk of `poll(budget)`, decode and count it completely.
3. When it suits, between two chunks or after a poll: `puts, deletes = positions()`, commit them in ONE
   transaction with your counters and decoder snapshots, then call `committed()`.
4. `close()`.

A chunk counts as read as soon as it is handed out: never ask for positions while a chunk is half counted.
After a crash everything since the last commit is given again, and nothing else.

Match rotated files too (`app.log*`): then any number of rotations between two polls or while the exporter is
down loses nothing, and a rotated file is still counted only once. With `app.log` alone, the file it was last
read from is found under its new name, but files that came and went in between are not.
"""

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from kvcache_exporter.errors import StateError
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
    """Names the log, not the file: stays when the file is renamed, copied or gzipped, and over restarts."""
    path: str
    lines: list[bytes]
    line_count: int = 0
    """Complete lines as they stand in the file."""
    too_long: int = 0
    """Lines that were longer than allowed and dropped."""
    finished: bool = False
    """The file is at its end and nobody seems to write to it: flush its decoder. More may still come."""


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
        """Look at all files once, then give what is new in them, about `budget_bytes` of it at most."""
        self._tracker.scan()
        self.counters.rotations.update(self._tracker.rotations)
        self._tracker.rotations.clear()
        yield from self._read(budget_bytes)
        yield from self._settle()
        yield from self._finish()
        self._tracker.tidy()

    def positions(self) -> tuple[dict[str, bytes], set[str]]:
        """What to put into and delete from the saved state, to go on after the chunks handed out so far.

        Holds all changes since the last `committed()`: after a commit that failed, just try another.
        """
        current = {_SELF: self._encode_self()}
        for key, stream in self._tracker.streams.items():
            current[key] = self._encode(key, stream.cursor)
        puts = {key: value for key, value in current.items() if self._saved.get(key) != value}
        self._offered = puts, self._saved.keys() - current.keys()
        return self._offered

    def committed(self) -> None:
        """What `positions()` last returned is in the state file."""
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
        # Go on where the budget ran out, so that busy files cannot keep others from being read.
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
                f"the saved state of a log source cannot be read ({error}); "
                "move the file at state.path away to begin anew, or run the version that wrote it"
            ) from error
