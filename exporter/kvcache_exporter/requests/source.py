"""One configured log source: follows its files, counts its records, and publishes only what is committed.

Positions, counters and half-read records go into the state file in one transaction; the page shows the
counters of the last transaction. So after a crash nothing is counted twice and no counter goes back.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.errors import RecordError
from kvcache_exporter.exposition import Chunk, Renderer
from kvcache_exporter.model import Sample
from kvcache_exporter.requests.bands import Bands
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry, Format
from kvcache_exporter.requests.formats.seen import Seen
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.options import FollowOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.tail import Chunk as LogChunk
from kvcache_exporter.requests.tail import Follower
from kvcache_exporter.state import StateStore

log = logging.getLogger(__name__)

_COMMIT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the configuration says of one source."""

    name: str
    paths: tuple[str, ...]
    start_at: Literal["beginning", "end"]
    decoding: DecoderOptions
    full_hit: FullHit
    length_bands: tuple[int, ...] = ()
    models: int = 200
    groups: int = 200
    max_line_bytes: int = 8 << 20


class LogSource:
    """Reads in `poll`, which one thread calls; `block` may be read by any."""

    def __init__(self, options: SourceOptions, form: Format, store: StateStore) -> None:
        self.name = options.name
        self.block: Mapping[Metric, Chunk] = {}
        self.lag_bytes = 0
        """Bytes in the source's files that are not read yet."""
        self._format, self._options, self._store = form, options, store
        self._spaces = {kind: f"{kind}/{options.name}" for kind in ("files", "ledger", "decoders", "seen")}
        self.ledger = Ledger(options.name, options.full_hit, models=options.models, groups=options.groups)
        self.ledger.restore(store.load(self._spaces["ledger"]))
        self._decoders: dict[str, Decoder] = {}
        self._seen = Seen()
        self._seen.restore(store.load(self._spaces["seen"]))
        self._decoding = replace(options.decoding, seen=self._seen)
        self._snapshots = store.load(self._spaces["decoders"])
        self._follower = Follower(
            options.paths,
            options.start_at,
            store.load(self._spaces["files"]),
            FollowOptions(max_line_bytes=options.max_line_bytes),
        )
        self._bands = Bands(options.length_bands)
        self._renderer = Renderer()
        self._reported: set[str] = set()
        self._recognised: set[str] = set()
        self._dirty = True
        self._publish()

    def poll(self, now: float) -> bool:
        """Read what is new, at most about 16 MiB; True if there may be more. `now` is Unix seconds."""
        size = 0
        for chunk in self._follower.poll(_COMMIT_BYTES):
            self.ledger.add(self._bands.apply(self._decode(chunk)))
            if chunk.too_long:
                self.ledger.fail("too_long", chunk.too_long)
            size += chunk.line_count + chunk.too_long
            self._dirty = True
        self._report_problems()
        self.ledger.health.lines = self._follower.counters.lines
        self.ledger.health.rotations = self._follower.counters.rotations.total()
        self._commit()
        self.ledger.tick(now)
        self._publish()
        return self._follower.lag_bytes > 0 and size > 0

    def close(self) -> None:
        self._follower.close()

    def _decode(self, chunk: LogChunk) -> list[Entry]:
        decoder = self._decoder(chunk.file_key)
        try:
            entries = decoder.decode(chunk.lines)
            self._say_format(getattr(decoder, "chosen", ""))
            return [*entries, *decoder.flush()] if chunk.finished else entries
        except Exception:
            # The chunk counts as read, so its lines must show up somewhere. No text of them is logged.
            log.exception("source %s: unexpected fault in a decoder; please report it", self.name)
            return [RecordError("internal")] * len(chunk.lines)

    def _say_format(self, chosen: str) -> None:
        if chosen and chosen not in self._recognised:
            self._recognised.add(chosen)
            log.info("source %s: recognised logs of format %s", self.name, chosen)

    def _decoder(self, file_key: str) -> Decoder:
        decoder = self._decoders.get(file_key)
        if decoder is None:
            decoder = self._decoders[file_key] = self._format.decoder(self._decoding)
            if snapshot := self._snapshots.get(file_key):
                decoder.restore(snapshot)
        return decoder

    def _commit(self) -> None:
        positions, gone = self._follower.positions()
        if not (self._dirty or positions or gone):
            return
        for key in gone:
            self._decoders.pop(key, None)
            self._snapshots.pop(key, None)
        snapshots = {key: decoder.snapshot() for key, decoder in self._decoders.items()}
        changed = {key: held for key, held in snapshots.items() if held != self._snapshots.get(key, b"")}
        puts = self._in("files", positions) | self._in("ledger", self.ledger.changes())
        seen, forgotten = self._seen.changes()
        puts |= self._in("decoders", changed) | self._in("seen", seen)
        deletes = [(self._spaces[kind], key) for kind in ("files", "decoders") for key in gone]
        deletes += [(self._spaces["seen"], key) for key in forgotten]
        self._store.commit(puts, deletes)
        self._follower.committed()
        self.ledger.committed()
        self._seen.committed()
        self._snapshots.update(changed)
        self._dirty = False

    def _in(self, kind: str, entries: Mapping[str, bytes]) -> dict[tuple[str, str], bytes]:
        return {(self._spaces[kind], key): value for key, value in entries.items()}

    def _publish(self) -> None:
        self.lag_bytes = self._follower.lag_bytes
        lag = Sample(c.LOG_LAG, (self.name,), float(self.lag_bytes))
        self.block = self._renderer.block([*self.ledger.samples(), lag])

    def _report_problems(self) -> None:
        problems = set(self._follower.problems)
        for problem in sorted(problems - self._reported):
            log.warning("source %s: %s", self.name, problem)
        self._reported = problems
