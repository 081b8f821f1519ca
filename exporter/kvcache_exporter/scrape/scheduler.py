"""Scrapes many targets concurrently: on a ticker, and on demand when pages are too old.

Targets that timed out are scraped by a few separate threads, so that hanging ones never delay the others.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from kvcache_exporter.catalogue import Metric
from kvcache_exporter.errors import ScrapeError, StateError
from kvcache_exporter.exposition import Chunk, Renderer
from kvcache_exporter.scrape.collector import TargetCollector

log = logging.getLogger(__name__)

_SHARE_FOR_SUSPECTS = 8
_SPREAD_PER_TARGET = 0.01
_TICK = 0.02
"""Seconds between looks for targets that are due, at least: a look at 10,000 costs 0.4 ms."""
_SLOW_TO_FAIL = 0.25
"""Seconds after which a failed scrape counts as hanging, whatever its reason."""


class Fetches(Protocol):
    """Fetches a target's page; raises ScrapeError."""

    def fetch(self) -> bytes: ...

    def close(self) -> None: ...


@dataclass(eq=False, slots=True)
class Job:
    """One target and everything needed to scrape it."""

    name: str
    collector: TargetCollector
    fetcher: Fetches
    renderer: Renderer
    due: float = 0.0
    scraped: float = float("-inf")
    """Monotonic time of the start of the last scrape."""
    suspect: bool = False
    running: "Future[None] | None" = None
    block: Mapping[Metric, Chunk] = field(default_factory=dict)
    kept: bool = True
    """Whether the last call of `keep` succeeded."""
    ended: bool = False
    """Whether the target is gone or the exporter stops: a scrape still under way is ignored."""
    keep: Callable[[bytes], None] = lambda _: None
    """Saves the state that must survive a restart of the exporter."""


class Scheduler:
    """Keeps the pages of a set of targets fresh; `set_jobs` may be called at any time."""

    def __init__(self, interval: float, concurrency: int, *, clock: Callable[[], float] = time.time) -> None:
        self.interval = interval
        self._clock = clock
        self._jobs: dict[Hashable, Job] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._pool = ThreadPoolExecutor(concurrency, "scrape")
        self._suspects = ThreadPoolExecutor(max(2, concurrency // _SHARE_FOR_SUSPECTS), "suspect")
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)

    def start(self) -> None:
        self._ticker.start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._suspects.shutdown(wait=False, cancel_futures=True)
        for job in self._jobs.values():
            job.ended = True
            job.fetcher.close()

    @property
    def jobs(self) -> dict[str, Job]:
        """A snapshot by target name, sorted."""
        with self._lock:
            return {job.name: job for job in sorted(self._jobs.values(), key=lambda job: job.name)}

    def set_jobs(self, wanted: Mapping[Hashable, Callable[[], Job]]) -> None:
        """Replace the set of targets: new jobs are created, known ones are kept, others end at once.

        Keys hold everything that a job is made from, so that a changed setting makes a new job.
        """
        now = time.monotonic()
        with self._lock:
            gone = [self._jobs.pop(key) for key in self._jobs.keys() - wanted.keys()]
            for job in gone:
                self._part(job)
            spread = min(self.interval, _SPREAD_PER_TARGET * len(wanted))
            new = wanted.keys() - self._jobs.keys()
            for key in new:
                job = wanted[key]()
                # Spread by name: a fleet is not scraped all at once, and keeps its order over restarts.
                job.due = now + spread * crc32(job.name.encode()) / 2**32
                self._jobs[key] = job
        for job in gone:
            job.fetcher.close()
        if new:
            self._wake.set()

    def freshen(self, max_age: float, budget: float) -> None:
        """Scrape pages older than `max_age` seconds.

        Waits no longer than `budget` seconds, and never for targets that hung the last time.
        """
        oldest = time.monotonic() - max_age
        with self._lock:
            stale = [job for job in self._jobs.values() if job.scraped < oldest and not job.suspect]
            futures = [self._submit(job) for job in stale]
        wait(futures, timeout=budget)

    def blocks(self) -> list[Mapping[Metric, Chunk]]:
        return [job.block for job in self.jobs.values()]

    def _tick(self) -> None:
        while not self._stopped:
            now = time.monotonic()
            with self._lock:
                for job in self._jobs.values():
                    if job.due <= now:
                        self._submit(job)
                upcoming = min((job.due for job in self._jobs.values()), default=now + self.interval)
            self._wake.wait(max(_TICK, upcoming - time.monotonic()))
            self._wake.clear()

    def _submit(self, job: Job) -> "Future[None]":
        job.due = time.monotonic() + self.interval
        if job.running is None or job.running.done():
            pool = self._suspects if job.suspect else self._pool
            try:
                job.running = pool.submit(self._scrape, job)
            except RuntimeError:
                # The pools are closed: the exporter is shutting down.
                job.running = Future()
                job.running.set_result(None)
        return job.running

    def _scrape(self, job: Job) -> None:
        job.scraped = started = time.monotonic()
        before = job.collector.last_error
        try:
            data = job.fetcher.fetch()
            if job.ended:
                return
            job.collector.page(data, self._clock(), time.monotonic() - started)
        except ScrapeError as error:
            if job.ended:
                return
            seconds = time.monotonic() - started
            job.collector.failed(error, seconds)
            job.suspect = error.reason == "timeout" or seconds > _SLOW_TO_FAIL
        except Exception as error:
            log.exception("target %s: unexpected fault; please report it", job.name)
            job.collector.failed(ScrapeError("internal", repr(error)), time.monotonic() - started)
        else:
            job.suspect = False
        self._report(job, before)
        self._keep(job)
        job.block = job.renderer.block(job.collector.samples)

    def _keep(self, job: Job) -> None:
        if (changed := job.collector.cold.changes(self._clock(), again=not job.kept)) is not None:
            self._save(job, changed)

    def _part(self, job: Job) -> None:
        """The target was removed, has new settings, or is a new pod of the same name."""
        job.ended = True
        job.collector.cold.gone()
        if job.collector.plan is not None:
            self._save(job, job.collector.cold.snapshot(self._clock()))

    def _save(self, job: Job, data: bytes) -> None:
        before = job.kept
        try:
            job.keep(data)
            job.kept = True
        except StateError as error:
            job.kept = False
            if before:
                log.error("target %s: its state is not kept: %s", job.name, error)  # noqa: TRY400

    def _report(self, job: Job, before: str) -> None:
        """Log once when a target goes down or comes back, not at every scrape."""
        error = job.collector.last_error
        if bool(error) != bool(before):
            log.log(
                logging.WARNING if error else logging.INFO, "target %s: %s", job.name, error or "up again"
            )
