"""Turns targets into scrape jobs, and keeps the history of each target's restarts in the state file."""

import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from urllib.parse import urlsplit

from kvcache_exporter.config import Config
from kvcache_exporter.engines import candidates
from kvcache_exporter.errors import StateError
from kvcache_exporter.exposition import Renderer
from kvcache_exporter.scrape.cold import forgotten
from kvcache_exporter.scrape.collector import TargetCollector, no_version
from kvcache_exporter.scrape.fetch import Fetcher
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.scrape.lifecycle import ColdRule
from kvcache_exporter.scrape.scheduler import Job
from kvcache_exporter.scrape.version import EngineVersion
from kvcache_exporter.state import StateStore
from kvcache_exporter.targets import Target

log = logging.getLogger(__name__)

_SPACE = "targets"
_SWEEP_SECONDS = 86400.0


class JobMaker:
    """All jobs share one Fleet, which compares the replicas of a model with each other."""

    def __init__(self, store: StateStore, cleared: Callable[[str], int | None] = lambda _: None) -> None:
        """`cleared` gives, for a target, how often its KV events reported an emptied cache."""
        self._store = store
        self._cleared = cleared
        self._fleet = Fleet()
        self._saved = store.load(_SPACE)
        self._swept = 0.0

    def wanted(self, targets: Iterable[Target], config: Config) -> dict[Hashable, Callable[[], Job]]:
        """Factories of the targets' jobs; keys hold all settings of a job, so a change makes a new one."""
        targets = list(targets)
        try:
            self._forget({target.name for target in targets})
        except StateError as error:
            log.error("old targets are not forgotten: %s", error)  # noqa: TRY400
        settings = (config.scrape.timeout, config.scrape.max_page_bytes, config.cold)
        return {(target, *settings): partial(self._make, target, config) for target in targets}

    def save(self, jobs: Iterable[Job]) -> None:
        """Write the state of all jobs; call it once nothing is scraped any more."""
        now = time.time()
        self._store.commit({(_SPACE, job.name): job.collector.cold.snapshot(now) for job in jobs})

    def _make(self, target: Target, config: Config) -> Job:
        engines = candidates(target.engine)
        collector = TargetCollector(
            target.name,
            engines,
            namespace=target.namespace,
            cold=ColdRule(config.cold.recovered_ratio, config.cold.max_duration),
            fleet=self._fleet,
            address=urlsplit(target.url).netloc.rpartition("@")[2],
            cleared=partial(self._cleared, target.name),
            request_metrics=target.request_metrics,
            version=EngineVersion(target.url, target.http).of if target.ask_version else no_version,
        )
        if (data := self._saved.get(target.name)) is not None:
            collector.cold.restore(data)
        scrape = config.scrape
        fetcher = Fetcher(
            target.url, http=target.http, timeout=scrape.timeout, max_page_bytes=scrape.max_page_bytes
        )
        return Job(
            target.name, collector, fetcher, Renderer(target.labels), keep=partial(self._keep, target.name)
        )

    def _forget(self, known: Collection[str]) -> None:
        """Drop the state of targets that did not come back: a Deployment keeps giving its pods new names.

        Those that are `known` stay, whatever the clock says.
        """
        now = time.time()
        if now - self._swept > _SWEEP_SECONDS:
            self._swept = now
            gone = [name for name in forgotten(dict(self._saved), now) if name not in known]
            for name in gone:
                del self._saved[name]
            self._store.commit({}, [(_SPACE, name) for name in gone])

    def _keep(self, name: str, data: bytes) -> None:
        self._saved[name] = data
        self._store.commit({(_SPACE, name): data})
