"""One source that reads its lines from Kafka: its thread, and the samples it publishes.

Any failure ends the session with the brokers: the thread forgets what it counted but did not claim, joins the
group again, and finds out whether its last batch was claimed.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.exposition import Chunk, Renderer
from kvcache_exporter.model import RequestRecord, Sample
from kvcache_exporter.requests.books import Books
from kvcache_exporter.requests.formats.base import Format
from kvcache_exporter.requests.kafka.errors import RejoinError
from kvcache_exporter.requests.kafka.journal import Journal
from kvcache_exporter.requests.kafka.options import KafkaOptions
from kvcache_exporter.requests.kafka.trouble import Trouble
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.state import StateStore

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 5.0


class KafkaSource:
    """The first `poll` starts the thread; any thread may read `block`."""

    lag_bytes = 0

    def __init__(self, options: SourceOptions, kafka: KafkaOptions, form: Format, store: StateStore) -> None:
        self.name = options.name
        self.block: Mapping[Metric, Chunk] = {}
        self.lag_messages = 0
        """Messages in this exporter's partitions that are not counted yet."""
        self._options, self._kafka = options, kafka
        self._books = Books(options, form, store)
        self.ledger = self._books.ledger
        self._journal = Journal(options.name, self._books, store)
        self._trouble = Trouble(options.name)
        self._renderer = Renderer()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._publish()

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be read at the moment, and why."""
        return self._trouble.problems

    def poll(self, now: float) -> bool:  # noqa: ARG002
        """Make sure that the thread runs; never waits, and returns False as it reads nothing itself."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name=f"kafka {self.name}", daemon=True)
            self._thread.start()
        return False

    @property
    def is_full(self) -> bool:
        """Whether too many spans wait for messages that cannot be read."""
        return self._journal.inbox.is_full

    def add_spans(self, records: Sequence[RequestRecord], now: float) -> None:  # noqa: ARG002
        """Count what spans add to this log's requests with its next batch of messages.

        What this returns from is in the state file. Raises StateError, and then puts them there with
        whatever comes next.
        """
        self._journal.inbox.add(records)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)
        # A thread that still waits for a broker must not overwrite what its successor writes.
        self._journal.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._journal.load()
                self.ledger.begin(time.time())
                self._publish()
                self._read()
            except RejoinError as reason:
                log.info("source %s: %s", self.name, reason)
            except KVCacheError as error:
                if not self._stop.is_set():
                    self._trouble.note(error)
            except Exception:
                log.exception("source %s: unexpected fault; please report it", self.name)
            self._stop.wait(_RETRY_SECONDS)

    def _read(self) -> None:
        # Imported late, as the library is an optional extra.
        from kvcache_exporter.requests.kafka.session import Session  # noqa: PLC0415

        session = Session(self._options, self._kafka, self._books, self._journal, self._trouble)
        try:
            session.join()
            while not self._stop.is_set():
                if session.turn():
                    self.lag_messages = session.lag()
                    self.ledger.tick(time.time())
                    self._publish()
        finally:
            session.leave()

    def _publish(self) -> None:
        self.block = self._renderer.block([*self._books.samples(), *self._own_samples()])

    def _own_samples(self) -> Iterator[Sample]:
        yield Sample(c.LOG_LAG_MESSAGES, (self.name,), float(self.lag_messages))
        for reason in c.MISSED_OFFSET_REASONS:
            yield Sample(c.LOG_MISSED, (self.name, reason), float(self.ledger.health.missed.get(reason, 0)))
        for reason in c.BROKER_ERROR_REASONS:
            yield Sample(c.LOG_BROKER_ERRORS, (self.name, reason), float(self._trouble.errors[reason]))
