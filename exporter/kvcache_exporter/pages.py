"""The contents of the HTTP endpoints, taken from the running exporter."""

import platform
import threading
import time
from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from kvcache_exporter import __version__
from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.builtin_page.assets import ASSETS
from kvcache_exporter.builtin_page.render import page
from kvcache_exporter.config import masked
from kvcache_exporter.exposition import Page, exposition
from kvcache_exporter.model import Sample, Signal
from kvcache_exporter.scrape.scheduler import Job
from kvcache_exporter.summary.schema import Exporter, Summary
from kvcache_exporter.web import Asset, Request, Response

_SHARED_SECONDS = 1.0
MAX_WAIT = 1.0
"""Seconds that /metrics waits at most for scrapes it started: slow targets never make it fail."""


class ExporterPages:
    """Implements `web.Pages` for an App."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._made: dict[str | None, Summary] = {}
        self._page = Page(app.config.limits.series_per_metric)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def metrics(self, openmetrics: bool) -> bytes:
        blocks = self._app.blocks(MAX_WAIT)
        text = self._page.text(blocks, openmetrics=openmetrics)
        text += exposition(self._own_samples(), openmetrics=openmetrics).removesuffix("# EOF\n")
        process = generate_openmetrics(self._process) if openmetrics else generate_latest(self._process)
        return text.encode() + process

    def ready(self) -> bool:
        """Whether every target has been scraped once: until then, /metrics lacks part of the fleet."""
        return all(job.block for job in self._app.scheduler.jobs.values())

    def reload(self) -> str | None:
        problem = self._app.reload()
        self._page.limit = self._app.config.limits.series_per_metric
        return problem

    def config_text(self) -> str:
        return masked(self._app.config)

    def target_text(self, name: str) -> str | None:
        job = self._app.scheduler.jobs.get(name)
        return None if job is None else "".join(f"{line}\n" for line in _describe(job))

    def summary_json(self, model: str | None) -> bytes | None:
        summary = self._summary(model)
        return None if summary is None else msgspec.json.encode(summary)

    def page_html(self, model: str | None) -> bytes | None:
        summary = self._summary(model)
        return None if summary is None else page(summary)

    def probe(self, target: str, module: str, timeout: str, *, openmetrics: bool) -> bytes:
        return self._app.prober.probe(target, module, timeout, openmetrics=openmetrics).encode()

    def asset(self, path: str) -> Asset | None:
        return ASSETS.get(path)

    def max_export(self) -> int:
        receiver = self._app.receiver
        return receiver.max_body if receiver else 0

    def export(self, signal: Signal, request: Request) -> Response | None:
        receiver = self._app.receiver
        if receiver is None:
            return None
        found = request.headers
        posted = (found.get("content-type", ""), found.get("content-encoding", ""), request.body)
        answer = receiver.answer(signal, *posted, request.body_problem)
        headers = {"Content-Type": answer.content_type}
        if answer.retry_after is not None:
            headers["Retry-After"] = str(answer.retry_after)
        return Response(answer.status, answer.body, headers)

    def _summary(self, model: str | None) -> Summary | None:
        """A summary at most a second old, shared by all who look at the page during an incident."""
        with self._lock:
            oldest = time.time() - _SHARED_SECONDS
            self._made = {name: made for name, made in self._made.items() if made.generated_at > oldest}
            found = self._made.get(model) or self._summarise(model)
            if found is not None:
                self._made[model] = found
            return found

    def _summarise(self, model: str | None) -> Summary | None:
        app = self._app
        about = Exporter(
            version=__version__,
            python_version=platform.python_version(),
            shard_index=app.config.shard.index,
            shard_count=app.config.shard.count,
            started_at=app.started,
            config_reload_ok=app.reload_ok,
            config_loaded_at=app.reloaded,
        )
        return app.recorder.summary(
            time.time(),
            [job.collector for job in app.scheduler.jobs.values()],
            app.sources,
            app.event_sources,
            model=model,
            exporter=about,
            problems=app.discovery_problems(),
        )

    def _own_samples(self) -> Iterator[Sample]:
        yield Sample(c.BUILD_INFO, (__version__, platform.python_version()), 1.0)
        yield Sample(c.CONFIG_RELOAD_OK, (), float(self._app.reload_ok))
        yield Sample(c.CONFIG_RELOAD_TIME, (), self._app.reloaded)
        if prices := self._app.prices:
            yield Sample(c.PRICE_TABLE_TIME, (), prices.as_of)
            yield Sample(c.PRICE_TABLE_MODELS, (), float(len(prices.table)))
        failures = self._app.discovery_failures
        for reason in c.DISCOVERY_FAILURE_REASONS:
            yield Sample(c.DISCOVERY_FAILURES, (reason,), float(failures.get(reason, 0)))
        if (lost := self._app.state_lost_at) is not None:
            yield Sample(c.STATE_LOST, (), lost)
        probes = self._app.prober.results
        for result in c.PROBE_RESULTS if self._app.config.probe else ():
            yield Sample(c.PROBES, (result,), float(probes[result]))
        yield Sample(c.ACTIVE_SERIES, (), float(self._page.active))


def _describe(job: Job) -> Iterator[str]:
    collector = job.collector
    yield f"target: {job.name}"
    yield f"engine: {collector.engine.name if collector.engine else 'not recognised yet'}"
    yield f"up: {'yes' if collector.up else 'no'}"
    if collector.last_error:
        yield f"last error: {collector.last_error}"
    if job.scraped > 0:
        yield f"last asked: {time.monotonic() - job.scraped:.1f} s ago"
    if collector.plan is not None:
        yield f"hit rate made from: {collector.plan.basis or 'nothing this page has'}"
        yield f"missing families: {', '.join(collector.plan.missing) or 'none'}"
        yield f"deprecated families: {', '.join(collector.plan.deprecated) or 'none'}"
    counted = {reason: n for reason, n in collector.anomalies.items() if n}
    yield f"anomalies: {', '.join(f'{reason} {n}' for reason, n in sorted(counted.items())) or 'none'}"
    yield ""
    yield exposition(collector.samples)
