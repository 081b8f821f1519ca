"""The source of OTLP exports: counts their requests, or joins them to those of a log."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.errors import RecordError
from kvcache_exporter.exposition import Chunk, Renderer
from kvcache_exporter.model import RequestRecord, Sample, Signal, Skipped
from kvcache_exporter.requests.bands import Bands
from kvcache_exporter.requests.formats.base import Entry
from kvcache_exporter.requests.formats.seen import Seen
from kvcache_exporter.requests.formats.spans import PROMPT, Span, SpanReader
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.state import StateStore


@dataclass(frozen=True, slots=True)
class Export:
    """One decoded export."""

    signal: Signal
    items: int
    """Spans or log records, including those that are not requests."""
    entries: list[tuple[str, Entry]]
    """Pairs of an identity, by which a repeated item is recognised ("" if it has none), and its entry."""

    @property
    def rejected(self) -> Counter[str]:
        """Items with impossible counts, by reason."""
        return Counter(entry.reason for _, entry in self.entries if isinstance(entry, RecordError))


class Received(msgspec.Struct):
    """The receiver's counters in the state file."""

    items: dict[str, int] = {}
    refused: dict[str, int] = {}


class Partner(Protocol):
    """The source whose log the spans are joined to."""

    @property
    def is_full(self) -> bool:
        """Whether no more spans are accepted now."""
        ...

    def add_spans(self, records: Sequence[RequestRecord], now: float) -> None:
        """Count spans; they are in the state file when this returns. After a StateError they are kept."""
        ...


class OtlpSource:
    """`add` and `poll` are called by one thread at a time; `block` may be read by any."""

    lag_bytes = lag_messages = 0
    """Senders keep what they have not sent yet."""
    problems: tuple[str, ...] = ()

    def __init__(
        self, options: SourceOptions, store: StateStore, partner: Callable[[], Partner | None]
    ) -> None:
        """`partner` returns the log that spans are joined to, None if they are counted by themselves."""
        self.name = options.name
        self.block: Mapping[Metric, Chunk] = {}
        self._store, self._partner = store, partner
        self._spaces = {kind: f"{kind}/{options.name}" for kind in ("ledger", "seen", "otlp")}
        self.ledger = Ledger(options.name, options.full_hit, models=options.models, groups=options.groups)
        self.ledger.restore(store.load(self._spaces["ledger"]))
        self._seen = Seen()
        self._seen.restore(store.load(self._spaces["seen"]))
        saved = store.load(self._spaces["otlp"]).get("received")
        self._received = msgspec.msgpack.decode(saved, type=Received) if saved else Received()
        self._refusals = Counter(self._received.refused)
        self._counting = threading.Lock()
        self._bands = Bands(options.length_bands)
        self._reader = SpanReader(options.decoding)
        self.wanted = self._reader.wanted
        self._renderer = Renderer()
        self._dirty = True
        self._publish()

    def decode(self, signal: Signal, items: Iterable[Span | RecordError]) -> Export:
        """Has no side effects and may run in any thread; unreadable items are passed as errors."""
        found = [
            ("", item) if isinstance(item, RecordError) else (_identity(item), self._entry(signal, item))
            for item in items
        ]
        return Export(signal, len(found), found)

    def add(self, export: Export, now: float) -> None:
        """Count an export; when this returns it is in the state file, so that the sender may forget it.

        After a StateError the sender repeats it: nothing is lost, and nothing is counted twice.
        """
        self.ledger.begin(now)
        counted = self._received.items
        counted[export.signal] = counted.get(export.signal, 0) + export.items
        self.ledger.health.lines += export.items
        self._dirty = True
        entries = self._bands.apply([self._once(identity, entry) for identity, entry in export.entries])
        if self._partner() is None:
            self.ledger.add(entries)
            self._commit([], now)
            return
        self.ledger.add([entry for entry in entries if not isinstance(entry, RequestRecord)])
        self._commit([entry for entry in entries if isinstance(entry, RequestRecord)], now)

    @property
    def is_full(self) -> bool:
        """Whether senders must retry later."""
        partner = self._partner()
        return partner is not None and partner.is_full

    def refuse(self, reason: str) -> None:
        """Count a refused export, from any thread; `reason` is one of the catalogue's OTLP_REFUSALS.

        Refusals since the last commit are lost in a crash.
        """
        with self._counting:
            self._refusals[reason] += 1

    def poll(self, now: float) -> bool:
        self._dirty |= self._refusals != self._received.refused
        self._commit([], now)
        self.ledger.tick(now)
        self._publish()
        return False

    def close(self) -> None:
        """Nothing is open."""

    def _entry(self, signal: Signal, span: Span) -> Entry:
        if signal == "logs" and not any(name in span.attributes for name in PROMPT):
            return Skipped("not_a_request")
        try:
            return self._reader.entry(span)
        except RecordError as error:
            return RecordError(error.reason, str(error))

    def _once(self, identity: str, entry: Entry) -> Entry:
        if isinstance(entry, Skipped) and entry.reason == "not_a_request":
            return entry
        return entry if not identity or self._seen.add("otlp", identity) else Skipped("duplicate")

    def _commit(self, joined: list[RequestRecord], now: float) -> None:
        if not self._dirty:
            return
        if partner := self._partner():
            # Before the ids below: an id in the state file means that the log has counted its request.
            partner.add_spans(joined, now)
        seen, forgotten = self._seen.changes()
        self._received.refused = dict(self._refusals)
        received = {"received": msgspec.msgpack.encode(self._received)}
        puts = self._in("ledger", self.ledger.changes()) | self._in("seen", seen) | self._in("otlp", received)
        # Durable, together with the commit of the log's source: the sender forgets the export after this.
        self._store.commit(puts, [(self._spaces["seen"], key) for key in forgotten], durable=True)
        self.ledger.committed()
        self._seen.committed()
        self._dirty = False

    def _in(self, kind: str, entries: Mapping[str, bytes]) -> dict[tuple[str, str], bytes]:
        return {(self._spaces[kind], key): value for key, value in entries.items()}

    def _publish(self) -> None:
        received = [
            Sample(c.OTLP_RECEIVED, (self.name, signal), float(self._received.items.get(signal, 0)))
            for signal in c.SIGNALS
        ]
        refused = [
            Sample(c.OTLP_REFUSED, (self.name, reason), float(self._received.refused.get(reason, 0)))
            for reason in c.OTLP_REFUSALS
        ]
        self.block = self._renderer.block([*self.ledger.samples(), *received, *refused])


def _identity(span: Span) -> str:
    """A span and the log record written within it describe the same request."""
    if span.span_id:
        return f"{span.trace_id}/{span.span_id}".lower()
    return f"{span.start_nanoseconds}/{sorted(span.attributes.items(), key=lambda item: item[0])!r}"
