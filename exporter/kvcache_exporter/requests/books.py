"""The counters and decoders of one source: everything that goes into the state file with its positions."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestColumns, RequestRecord, Sample
from kvcache_exporter.requests.bands import Bands
from kvcache_exporter.requests.formats.base import Decoder, Entry, Format
from kvcache_exporter.requests.formats.seen import Seen
from kvcache_exporter.requests.joiner import Joiner, JoinOptions
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.state import StateStore

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and key of an entry of the state file."""


class Books:
    """Decodes and counts lines of logs, with one decoder per log.

    The reader of the logs commits `changes` together with its positions, then calls `committed`.
    """

    def __init__(self, options: SourceOptions, form: Format, store: StateStore) -> None:
        self._name, self._format, self._store, self._options = options.name, form, store, options.decoding
        kinds = ("ledger", "decoders", "seen", "join", "joined")
        self._spaces = {kind: f"{kind}/{options.name}" for kind in kinds}
        self._join = options.join
        self.ledger = Ledger(options.name, options.full_hit, models=options.models, groups=options.groups)
        self._bands = Bands(options.length_bands)
        self._recognised: set[str] = set()
        self._gone: set[str] = set()
        self.rollback()

    def rollback(self) -> None:
        """Return to what the state file holds; raises StateError if it cannot be read."""
        self.ledger.rollback(self._store.load(self._spaces["ledger"]))
        self._decoders: dict[str, Decoder] = {}
        self._seen = Seen()
        self._seen.restore(self._store.load(self._spaces["seen"]))
        self._decoding = replace(self._options, seen=self._seen)
        self._snapshots = self._store.load(self._spaces["decoders"])
        self._changed: dict[str, bytes] = {}
        self._gone.clear()
        self._leftover: list[Key] = []
        self._joiner = self._new_joiner()

    def add(self, log_key: str, lines: Sequence[bytes], now: float, *, finished: bool = False) -> None:
        """Count lines of one log, in order; `finished` if no more lines are expected."""
        entries = self._decode(log_key, lines, finished=finished)
        if self._joiner:
            entries = list(self._joined(self._joiner.usage, entries, now))
        self.ledger.add(entries)

    def add_spans(self, records: Iterable[RequestRecord], now: float) -> None:
        """Join records made from spans with those of the logs, and count them; without `join` as they are."""
        spans = self._bands.apply(list(records))
        self.ledger.add(self._joined(self._joiner.span, spans, now) if self._joiner else spans)

    def expire(self, now: float) -> bool:
        """Count records that waited long enough for their other half; True if there were any."""
        alone = self._joiner.expire(now) if self._joiner else []
        self.ledger.add(alone)
        return bool(alone)

    def samples(self) -> Iterator[Sample]:
        yield from self.ledger.samples()
        if self._joiner:
            yield from self._joiner.samples(self._name)

    def forget(self, log_keys: Iterable[str]) -> None:
        """Drop the decoders of these logs."""
        for key in log_keys:
            self._decoders.pop(key, None)
            self._snapshots.pop(key, None)
            self._gone.add(key)

    @property
    def open_logs(self) -> set[str]:
        """Logs whose decoders hold something back."""
        return {key for key, held in self._snapshots.items() if held} | self._decoders.keys()

    def changes(self) -> tuple[dict[Key, bytes], list[Key]]:
        """Entries to put into the state file and keys to delete from it, since `committed`."""
        snapshots = {key: decoder.snapshot() for key, decoder in self._decoders.items()}
        self._changed = {
            key: held for key, held in snapshots.items() if held != self._snapshots.get(key, b"")
        }
        seen, forgotten = self._seen.changes()
        puts = self._in("ledger", self.ledger.changes())
        puts |= self._in("decoders", self._changed) | self._in("seen", seen)
        deletes = [(self._spaces["decoders"], key) for key in self._gone - self._changed.keys()]
        deletes += [(self._spaces["seen"], key) for key in forgotten]
        if self._joiner:
            waiting, gone, ids, dropped = self._joiner.changes()
            puts |= self._in("join", waiting) | self._in("joined", ids)
            deletes += [(self._spaces["join"], key) for key in gone]
            deletes += [(self._spaces["joined"], key) for key in dropped]
        return puts, deletes + self._leftover

    def committed(self) -> None:
        """Confirm that the state file holds what `changes` last returned."""
        self.ledger.committed()
        self._seen.committed()
        self._snapshots.update(self._changed)
        self._gone.clear()
        self._leftover.clear()
        if self._joiner:
            self._joiner.committed()

    def _new_joiner(self) -> Joiner | None:
        waiting, joined = (self._store.load(self._spaces[kind]) for kind in ("join", "joined"))
        if self._join:
            return Joiner(self._join, waiting, joined)
        # Joining is no longer configured: records that wait for their other half are counted alone.
        self.ledger.add(Joiner(JoinOptions(0.0), waiting, {}).expire(0.0))
        self._leftover = [(self._spaces["join"], key) for key in waiting]
        self._leftover += [(self._spaces["joined"], key) for key in joined]
        return None

    @staticmethod
    def _joined(
        take: Callable[[RequestRecord, float], list[Entry]],
        entries: Iterable[Entry | RequestColumns],
        now: float,
    ) -> Iterator[Entry | RequestColumns]:
        for entry in entries:
            if isinstance(entry, RequestRecord):
                yield from take(entry, now)
            else:
                yield entry

    def _decode(
        self, log_key: str, lines: Sequence[bytes], *, finished: bool
    ) -> list[Entry | RequestColumns]:
        decoder = self._decoder(log_key)
        try:
            entries = self._entries(decoder, lines)
            self._say_format(getattr(decoder, "chosen", ""))
            return [*entries, *self._bands.apply(decoder.flush())] if finished else entries
        except Exception:
            # The lines count as read, so they must be counted as failures. Their text is not logged.
            log.exception("source %s: unexpected fault in a decoder; please report it", self._name)
            return [RecordError("internal")] * len(lines)

    def _entries(self, decoder: Decoder, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """Entries of the lines; in columns unless bands or joins need single records."""
        if self._joiner or self._bands:
            return [*self._bands.apply(decoder.decode(lines))]
        return decoder.columns(lines)

    def _say_format(self, chosen: str) -> None:
        if chosen and chosen not in self._recognised:
            self._recognised.add(chosen)
            log.info("source %s: recognised logs of format %s", self._name, chosen)

    def _decoder(self, log_key: str) -> Decoder:
        decoder = self._decoders.get(log_key)
        if decoder is None:
            decoder = self._decoders[log_key] = self._format.decoder(self._decoding)
            if snapshot := self._snapshots.get(log_key):
                decoder.restore(snapshot)
        return decoder

    def _in(self, kind: str, entries: Mapping[str, bytes]) -> dict[Key, bytes]:
        return {(self._spaces[kind], key): value for key, value in entries.items()}
