"""The running exporter: builds targets and sources from the configuration, reloads it, shuts down."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvcache_exporter.catalogue import Metric
from kvcache_exporter.config import Config
from kvcache_exporter.config import EventSource as EventSection
from kvcache_exporter.errors import ConfigError, KVCacheError
from kvcache_exporter.events.source import EventOptions, EventSource
from kvcache_exporter.events.sources import EventSources
from kvcache_exporter.exposition import Chunk
from kvcache_exporter.jobs import JobMaker
from kvcache_exporter.probe import Prober
from kvcache_exporter.request_sources import RequestSources, Source
from kvcache_exporter.requests.prices import Prices
from kvcache_exporter.scrape.scheduler import Scheduler
from kvcache_exporter.settings import overview, read_settings
from kvcache_exporter.shard import Shard
from kvcache_exporter.state import StateStore
from kvcache_exporter.summary.recorder import LONGEST_STEP, SHORTEST_STEP, Recorder
from kvcache_exporter.targets import Target, Targets

if TYPE_CHECKING:
    from kvcache_exporter.requests.otlp.receiver import Receiver

log = logging.getLogger(__name__)

_DISCOVERY_SECONDS = 1.0
_LOG_SECONDS = 1.0
_BACKLOG_SECONDS = 0.005
"""Pause while a backlog of logs is read, so that other threads get a turn."""


class App:
    """Owns all parts of the exporter; a `reload` that fails leaves the old configuration in force."""

    def __init__(self, path: Path, shard_index: int | None = None) -> None:
        """`shard_index` overrides the file's. Raises ConfigError, StateError if the state is unusable."""
        self.path = path
        self._shard_index = shard_index
        self.config, self.prices = read_settings(path, shard_index)
        self.started = time.time()
        self.reloaded = time.time()
        """Unix time at which the configuration in force was loaded."""
        self.reload_ok = True
        self._store = StateStore(_state_path(self.config))
        self.scheduler = Scheduler(self.config.scrape.interval, self.config.scrape.concurrency)
        self._events = EventSources()
        self._jobs = JobMaker(self._store, self._events.cleared)
        self._targets_changed = threading.Event()
        """Set when discovery found something, so that it is scraped before the next tick."""
        self._targets = Targets(self.config.targets, self._targets_changed.set)
        self._found: tuple[Sequence[Target], Config] | None = None
        """What the running jobs were made from."""
        self.prober = Prober(self.config)
        self._requests = RequestSources(self._store)
        self.recorder = Recorder(self.started)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._discover, name="discovery", daemon=True),
            threading.Thread(target=self._read_logs, name="logs", daemon=True),
            threading.Thread(target=self._record, name="summary", daemon=True),
        ]
        self._use_requests(self.config, self.prices)

    def start(self) -> None:
        if self.config.requests and self.config.state.path is None:
            log.warning("state.path is not set: log positions and counters start anew at every restart")
        self._refresh_targets()
        self._use_events(self.config)
        self.scheduler.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._targets_changed.set()
        self.scheduler.stop()
        self._events.close()
        with self._lock:
            self._targets.close()
        for thread in self._threads:
            thread.join(5.0)
        self._requests.close()
        self._jobs.save(self.scheduler.jobs.values())
        self._store.close()

    @property
    def state_lost_at(self) -> float | None:
        """Unix time at which a damaged state file was set aside; None if that did not happen."""
        return self._store.lost_at

    @property
    def sources(self) -> list[Source]:
        return self._requests.all

    @property
    def event_sources(self) -> list[EventSource]:
        return self._events.all

    @property
    def receiver(self) -> "Receiver | None":
        """Receives OTLP; None if no source is configured for it."""
        return self._requests.receiver

    def reload(self) -> str | None:
        """None if the new configuration is in force, else the reason why the old one stays."""
        try:
            config, prices = self._reread()
            with self._lock:
                self._use_requests(config, prices)
                self._use_events(config)
                self._targets.use(config.targets)
                self.config = self.prober.config = config
                self.prices = prices
                self._refresh_targets()
        except KVCacheError as error:
            self.reload_ok = False
            log.error("configuration not reloaded, the old one stays in force: %s", error)  # noqa: TRY400
            return str(error)
        except Exception as error:
            # A reload must never stop a running exporter.
            self.reload_ok = False
            log.exception("configuration not reloaded: unexpected fault; please report it")
            return f"unexpected fault ({type(error).__name__}); the exporter's log has the details"
        self.scheduler.interval = config.scrape.interval
        self.reload_ok, self.reloaded = True, time.time()
        log.info("configuration reloaded from %s: %s", self.path, overview(config))
        return None

    def _reread(self) -> tuple[Config, Prices | None]:
        config, prices = read_settings(self.path, self._shard_index)
        if _state_path(config) != _state_path(self.config):
            raise ConfigError([f"{self.path}: state.path cannot change while running; restart"])
        return config, prices

    def blocks(self, max_wait: float) -> list[Mapping[Metric, Chunk]]:
        """The rendered samples of all targets and sources; targets with a page older than max_age are
        scraped first, for at most `max_wait` seconds."""
        self.scheduler.freshen(self.config.scrape.max_age, max_wait)
        logs = (source.block for source in self.sources)
        return [*self.scheduler.blocks(), *logs, *self._events.blocks()]

    @property
    def discovery_failures(self) -> Mapping[str, int]:
        """Counts by DISCOVERY_FAILURE_REASONS of the catalogue; reasons that never occurred are absent."""
        return self._targets.failures

    def discovery_problems(self) -> tuple[str, ...]:
        return self._targets.errors

    def _refresh_targets(self) -> None:
        self._targets.refresh(time.monotonic())
        found = (self._targets.targets(), self.config)
        # Looking a job up by all its settings takes 35 us; mostly nothing has changed since a second ago.
        if found != self._found:
            shard = _shard(self.config)
            own = (target for target in found[0] if shard.owns(target.name))
            self.scheduler.set_jobs(self._jobs.wanted(own, self.config))
            self._found = found

    def _discover(self) -> None:
        while not self._stop.is_set():
            self._targets_changed.wait(_DISCOVERY_SECONDS)
            self._targets_changed.clear()
            with self._lock:
                if not self._stop.is_set():
                    self._refresh_targets()

    def _use_requests(self, config: Config, prices: Prices | None) -> None:
        self._requests.use(config, _shard(config), prices)

    def _use_events(self, config: Config) -> None:
        shard = _shard(config)
        self._events.use(
            _event_options(source, config) for source in config.events if shard.owns(source.target)
        )

    def _read_logs(self) -> None:
        busy = True
        while not self._stop.wait(_BACKLOG_SECONDS if busy else _LOG_SECONDS):
            busy = self._requests.poll()

    def _record(self) -> None:
        """Feed the summary once per scrape interval, but not more often than its hour of history needs."""
        while not self._stop.wait(min(LONGEST_STEP, max(SHORTEST_STEP, self.config.scrape.interval))):
            try:
                collectors = [job.collector for job in self.scheduler.jobs.values()]
                ledgers = [source.ledger for source in self.sources]
                self.recorder.tick(time.time(), collectors, ledgers, self.event_sources)
            except Exception:
                log.exception("summary: unexpected fault; please report it")


def _shard(config: Config) -> Shard:
    return Shard(config.shard.index, config.shard.count)


def _state_path(config: Config) -> Path | None:
    return Path(config.state.path) if config.state.path else None


def _event_options(source: EventSection, config: Config) -> EventOptions:
    return EventOptions(
        target=source.target,
        endpoint=source.endpoint,
        replay=source.replay,
        topic=source.topic,
        bind=source.bind,
        ranks=source.ranks,
        model_name=source.model_name,
        max_blocks=config.limits.blocks_per_source,
    )
