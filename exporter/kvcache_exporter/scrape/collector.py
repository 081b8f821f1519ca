"""Turns one target's pages into samples: parser, plan, history, and counts of anomalies."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines.base import Engine
from kvcache_exporter.engines.plugin import PLUGIN
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.hit_rates import RequestIncreases
from kvcache_exporter.model import Sample
from kvcache_exporter.scrape.anomalies import Evidence, anomalies
from kvcache_exporter.scrape.cold import ColdWatch, signs, started
from kvcache_exporter.scrape.derive import Increases, derive, increases
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.scrape.lifecycle import ColdRule, Signs
from kvcache_exporter.scrape.measure import Identity, about, clean, measure, requests_under_way
from kvcache_exporter.scrape.pairs import Claim
from kvcache_exporter.scrape.parse import Layout, Page, PageParser
from kvcache_exporter.scrape.plan import Plan, plan_of
from kvcache_exporter.scrape.processes import Processes
from kvcache_exporter.scrape.requests import (
    RequestPlan,
    RequestTerms,
    increases_of,
    windowed,
)
from kvcache_exporter.scrape.select import Key, recognise, wanted_names
from kvcache_exporter.scrape.watched import Watched, in_columns
from kvcache_exporter.windows import History, Span, Terms


def no_version(_engine: Engine, _restarts: int) -> str:
    """The version of targets that are not asked for it."""
    return ""


class TargetCollector:
    """Processes the pages of one target; not thread-safe.

    `engines` are the candidates; with several, the page decides.
    """

    def __init__(
        self,
        target: str,
        engines: Sequence[Engine],
        *,
        namespace: str = "",
        windows: Mapping[str, float] = c.WINDOWS,
        cold: ColdRule | None = None,
        fleet: Fleet | None = None,
        address: str = "",
        cleared: Callable[[], int | None] = lambda: None,
        request_metrics: bool = True,
        version: Callable[[Engine, int], str] = no_version,
    ) -> None:
        """`address` is the target's host:port, if that is not its name.

        `cleared` returns how often KV events reported an emptied cache; None without events. `version`
        returns the engine's version; it is passed the number of restarts.
        """
        self.who = Identity(target, namespace)
        self.engine = engines[0] if len(engines) == 1 else None
        self.up = False
        self.samples: list[Sample] = []
        self.plan: Plan | None = None
        self.watched: Mapping[Key, Watched] = {}
        """Terms of the windows by key, for `span`; empty while the target is down."""
        self.recent: Mapping[str, Mapping[Key, Increases]] = {}
        self.recent_requests: Mapping[str, Mapping[str, RequestIncreases]] = {}
        """Increases by window as of the newest page; empty while the target is down."""
        self.anomalies: Counter[str] = Counter()
        self.last_error = ""
        self._fleet = fleet or Fleet()
        self._address = address or target
        self.cold = ColdWatch(target, cold or ColdRule(), self._fleet)
        self._candidates = engines
        self._takes_requests = request_metrics
        self._version = version
        self._windows = windows
        self._parser = PageParser(wanted_names((*engines, PLUGIN)))
        self._history = History(max(windows.values()))
        self._bound: tuple[Layout, int] | None = None
        self._columns: list[tuple[int, int]] = []
        self._terms: dict[Key, Watched] = {}
        self._claims: list[Claim] = []
        self._cache_resets = Terms(())
        self._processes = Processes()
        self._cleared = cleared
        self._cleared_before = cleared()
        self._requests = RequestPlan(())
        self._request_terms: dict[str, RequestTerms] = {}
        self._failures: Counter[str] = Counter()
        self._resets = 0
        self._last_success: float | None = None

    def page(self, data: bytes, now: float, duration: float = 0.0) -> None:
        """Process a page that was scraped at `now` (Unix seconds) in `duration` seconds."""
        try:
            page = self._parser.parse(data)
            plan = self._bind(page.layout)
        except ScrapeError as error:
            self.failed(error, duration)
            return
        values, impossible = clean(page.values)
        seen = self._add(plan, values, now)
        self.up, self._last_success, self.watched, self.last_error = True, now, self._terms, ""
        if plan.engine.serves:
            self.cold.observe(seen, self._history, self._terms.values(), now)
        self._fleet.answered(self.who.target, self._address)
        self._count(page, impossible, requests_under_way(plan, values), plan.merged)
        self.recent, self.recent_requests = self._increases()
        life = self.cold.lifecycle.life
        self.samples = [
            *self._health(duration),
            *about(plan, values, self.who.target, self._version(plan.engine, life.restarts)),
            *(self.cold.samples(now) if plan.engine.serves else ()),
            *self.cold.split(measure(plan, values, self.who)),
            *self._requests.samples(values, self.who.target, plan.engine.name),
            *self._windowed(),
        ]

    def _add(self, plan: Plan, values: list[float], now: float) -> Signs:
        """Add the counters to the history; returns what the page shows of its process."""
        counters = {col: v for i, col in self._columns if (v := values[i]) >= 0}
        start = started(plan, values)
        returned = self._processes.place(counters, start, self._history.generation)
        if returned is not None:
            self._history.rebase(returned)
            self._history.add(now, counters.items())
            self.anomalies["alternating"] += 1
            return signs(plan, values, returned=True)
        back = self._history.gone_back(counters)
        seen, restarted = self._judged(plan, values, back, counters)
        reset = bool(back)
        if self.cold.lifecycle.begins_at_zero(seen):
            reset |= self._history.restart()
        elif seen.went_back:
            self._history.restart(but=counters.keys() - restarted)
        self._history.add(now, counters.items())
        self._resets += reset
        self.anomalies["went_back"] += bool(back) and not seen.went_back
        return replace(seen, emptied=self._emptied())

    def _judged(
        self, plan: Plan, values: list[float], back: frozenset[int], counters: Mapping[int, float]
    ) -> tuple[Signs, frozenset[int]]:
        """Whether counters decreased as at a restart: most of a rank's at once, in a new process.

        Also returns the columns of those ranks.
        """
        start, known = started(plan, values), self.cold.lifecycle.life.start
        if not back or (start is not None and known is not None):
            return signs(plan, values, went_back=bool(back) and start != known), back
        ranks = [
            {col for col in item.indices if counters.get(col) or col in back} for item in self._terms.values()
        ]
        anew = [used for used in ranks if 2 * len(back & used) >= len(used) > 0]
        goes_on = len(anew) < sum(map(bool, ranks))
        return signs(plan, values, went_back=bool(anew), goes_on=goes_on), back.union(*anew)

    def _emptied(self) -> bool:
        """Whether the cache was emptied since the previous page, by KV events, or else by the page."""
        before, self._cleared_before = self._cleared_before, self._cleared()
        if self._cleared_before is not None:
            return before is not None and self._cleared_before > before
        step = self._history.last_step()
        return step is not None and step.increase(self._cache_resets) > 0

    def failed(self, error: ScrapeError, duration: float = 0.0) -> None:
        """The scrape failed: the engine's samples are withdrawn, and nothing is made up."""
        self.up, self.watched, self.recent, self.recent_requests = False, {}, {}, {}
        self.last_error = f"{error.reason}: {error}"
        self._failures[error.reason] += 1
        self.cold.gone()
        # The exporter's own counters of the target stay: one that vanishes during a restart would hide it.
        lived = self.cold.counted() if self.engine is None or self.engine.serves else ()
        self.samples = [*self._health(duration), *lived]

    def span(self, window: float) -> Span | None:
        return self._history.span(window)

    def last_step(self) -> Span | None:
        """Increases from the previous page to the newest."""
        return self._history.last_step()

    def _bind(self, layout: Layout) -> Plan:
        """The plan for a layout, with a history column for each watched series."""
        if self.plan is not None and self._bound == (layout, self._history.generation):
            return self.plan
        engine = recognise(self._candidates, layout.series, self.who.target)
        plan = self.plan
        if plan is None or self._bound is None or self._bound[0] is not layout:
            plan = plan_of(engine, layout)
            self._requests = RequestPlan(layout.series if self._takes_requests else ())
        watched = sorted({*plan.watched_indices, *self._requests.watched_indices})
        columns = {i: self._history.column(layout.series[i]) for i in watched}
        self._columns = list(columns.items())
        self._terms = {key: item.in_columns(columns) for key, item in plan.watched.items()}
        self._claims = [Claim(*(in_columns(terms, columns) for terms in claim)) for claim in plan.claims]
        self._cache_resets = in_columns(plan.cache_resets, columns)
        self._request_terms = self._requests.columns(columns)
        self.plan, self.engine, self._bound = plan, engine, (layout, self._history.generation)
        return plan

    def _count(
        self, page: Page, impossible: Counter[str], admitted: Mapping[Key, float], merged: frozenset[str]
    ) -> None:
        self.anomalies += impossible
        self.anomalies += anomalies(
            Evidence(self.watched, self._claims, admitted, self.cold.life_base), self._history
        )
        self.anomalies["counted_twice"] += bool(merged) and self._fleet.reads_any(merged, self.who.target)
        self.anomalies["malformed"] += page.malformed
        self.anomalies["duplicate"] += page.duplicates

    def _health(self, duration: float) -> Iterator[Sample]:
        target = self.who.target
        yield Sample(c.TARGET_UP, (target, self.engine.name if self.engine else ""), float(self.up))
        yield Sample(c.TARGET_SCRAPE_DURATION, (target,), duration)
        if self._last_success is not None:
            yield Sample(c.TARGET_LAST_SUCCESS, (target,), self._last_success)
        if self._resets:
            yield Sample(c.TARGET_RESETS, (target,), float(self._resets))
        for reason, count in sorted(self._failures.items()):
            yield Sample(c.TARGET_SCRAPE_FAILURES, (target, reason), float(count))
        # All reasons from the start: a counter that appears above zero hides its first increase from alerts.
        for reason in c.ANOMALY_REASONS:
            yield Sample(c.DATA_ANOMALIES, (target, reason), float(self.anomalies[reason]))

    def _increases(self) -> tuple[dict[str, dict[Key, Increases]], dict[str, dict[str, RequestIncreases]]]:
        """By window: the engine's increases by key, and the plugin's requests by model."""
        found = {window: self._history.span(seconds) for window, seconds in self._windows.items()}
        spans = {window: span for window, span in found.items() if span is not None}
        return (
            {
                w: {key: increases(item, span) for key, item in self.watched.items()}
                for w, span in spans.items()
            },
            {w: increases_of(self._request_terms, span) for w, span in spans.items()},
        )

    def _windowed(self) -> Iterator[Sample]:
        for window, by_key in self.recent.items():
            for key, found in by_key.items():
                labels = {**dict(zip(c.ENG, self.who.labels(key), strict=True)), "window": window}
                for metric, value in derive(found):
                    yield Sample(metric, tuple(labels.get(name, "") for name in metric.labels), value)
        for window, by_model in self.recent_requests.items():
            yield from windowed(by_model, self.who.target, self.engine.name if self.engine else "", window)
