"""One configured log source: follows its files, counts its records, and publishes only what is committed.

Positions, counters and half-read records go into the state file in one transaction; the page shows the
counters of the last transaction. So after a crash nothing is counted twice and no counter decreases.
"""

import logging
from collections.abc import Mapping, Sequence

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.exposition import Chunk, Renderer
from kvcache_exporter.model import RequestRecord, Sample
from kvcache_exporter.requests.books import Books
from kvcache_exporter.requests.formats.base import Format
from kvcache_exporter.requests.options import FollowOptions, SourceOptions
from kvcache_exporter.requests.tail import Follower
from kvcache_exporter.state import StateStore

log = logging.getLogger(__name__)

_COMMIT_BYTES = 16 << 20


class LogSource:
    """`poll` is called by one thread; `block` may be read by any."""

    lag_messages = 0
    is_full = False
    """Spans are counted at once."""

    def __init__(self, options: SourceOptions, form: Format, store: StateStore) -> None:
        self.name = options.name
        self.block: Mapping[Metric, Chunk] = {}
        self.lag_bytes = 0
        """Bytes of the source's files that are still to be read."""
        self.problems: tuple[str, ...] = ()
        """What could not be read in the last poll, and why."""
        self._store, self._space = store, f"files/{options.name}"
        self._books = Books(options, form, store)
        self.ledger = self._books.ledger
        self._follower = Follower(
            options.paths,
            options.start_at,
            store.load(self._space),
            FollowOptions(max_line_bytes=options.max_line_bytes),
        )
        self._renderer = Renderer()
        self._dirty = True
        self._publish()

    def poll(self, now: float) -> bool:
        """Read new lines, at most about 16 MiB; True if there may be more. `now` is Unix seconds."""
        size, self.ledger.now = 0, now
        self.ledger.begin(now)
        for chunk in self._follower.poll(_COMMIT_BYTES):
            self._books.add(chunk.file_key, chunk.lines, now, finished=chunk.finished)
            if chunk.too_long:
                self.ledger.fail("too_long", chunk.too_long)
            size += chunk.line_count + chunk.too_long
            self._dirty = True
        self._dirty |= self._books.expire(now)
        self._report_problems()
        self.ledger.health.lines = self._follower.counters.lines
        self.ledger.health.rotations = self._follower.counters.rotations.total()
        self._commit()
        self.ledger.tick(now)
        self._publish()
        return self._follower.lag_bytes > 0 and size > 0

    def add_spans(self, records: Sequence[RequestRecord], now: float) -> None:
        """Count what spans add to this log's requests; they are committed when this returns.

        On StateError they are kept and committed with the next batch.
        """
        self._books.add_spans(records, now)
        self._dirty |= bool(records)
        if self._dirty:
            self._commit()

    def close(self) -> None:
        self._follower.close()

    def _commit(self) -> None:
        positions, gone = self._follower.positions()
        if not (self._dirty or positions or gone):
            return
        self._books.forget(gone)
        puts, deletes = self._books.changes()
        puts |= {(self._space, key): value for key, value in positions.items()}
        self._store.commit(puts, [*deletes, *((self._space, key) for key in gone)])
        self._follower.committed()
        self._books.committed()
        self._dirty = False

    def _publish(self) -> None:
        self.lag_bytes = self._follower.lag_bytes
        lag = Sample(c.LOG_LAG, (self.name,), float(self.lag_bytes))
        self.block = self._renderer.block([*self._books.samples(), lag])

    def _report_problems(self) -> None:
        problems = tuple(self._follower.problems)
        for problem in sorted(set(problems) - set(self.problems)):
            log.warning("source %s: %s", self.name, problem)
        self.problems = problems
