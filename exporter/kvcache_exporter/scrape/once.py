"""Samples of a single scrape, for /probe: nothing is remembered."""

import time
from collections.abc import Callable, Iterator, Sequence

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines.base import Engine
from kvcache_exporter.engines.plugin import PLUGIN
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.model import Sample
from kvcache_exporter.scrape.measure import Identity, about, clean, measure
from kvcache_exporter.scrape.parse import PageParser
from kvcache_exporter.scrape.plan import Plan
from kvcache_exporter.scrape.requests import RequestPlan
from kvcache_exporter.scrape.select import recognise, wanted_names


def once(target: str, engines: Sequence[Engine], fetch: Callable[[], bytes]) -> list[Sample]:
    """Samples of the page or of the failure, without windows and without counters of scrapes."""
    started = time.monotonic()
    try:
        name, samples = _page(target, engines, fetch())
        up, failed = 1.0, []
    except ScrapeError as error:
        name, samples = engines[0].name if len(engines) == 1 else "", []
        up, failed = 0.0, [Sample(c.PROBE_FAILED, (target, error.reason), 1.0)]
    seconds = time.monotonic() - started
    health = [Sample(c.TARGET_UP, (target, name), up), Sample(c.TARGET_SCRAPE_DURATION, (target,), seconds)]
    return [*health, *failed, *samples]


def _page(target: str, engines: Sequence[Engine], data: bytes) -> tuple[str, list[Sample]]:
    """The engine's name and the page's samples by its table."""
    page = PageParser(wanted_names((*engines, PLUGIN))).parse(data)
    series = page.layout.series
    plan = Plan(recognise(engines, series, target), series)
    values, _ = clean(page.values)
    return plan.engine.name, list(_samples(plan, RequestPlan(series), values, target))


def _samples(plan: Plan, requests: RequestPlan, values: list[float], target: str) -> Iterator[Sample]:
    yield from about(plan, values, target)
    yield from measure(plan, values, Identity(target, ""))
    yield from requests.samples(values, target, plan.engine.name)
