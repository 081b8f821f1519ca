"""Watches the running exporter and answers for the last hour: one per exporter."""

import threading
from collections.abc import Iterable, Sequence

from kvcache_exporter import catalogue as c
from kvcache_exporter.distributions import quantile
from kvcache_exporter.model import OUTCOMES
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.summary import schema, tables
from kvcache_exporter.summary.figures import Scope
from kvcache_exporter.summary.gains import FLEET, Gains, Model, Series, in_buckets
from kvcache_exporter.summary.replicas import ModelPart, View, largest, total, view
from kvcache_exporter.summary.scopes import (
    Names,
    Parts,
    engine_window,
    parts_by_scope,
    request_window,
    scope,
)
from kvcache_exporter.summary.trail import Trail

_TRAIL_WINDOW = "1m"
_TRAIL_OUTCOMES = ("full", "partial", "miss")
SHORTEST_STEP, LONGEST_STEP = 1.0, 15.0
"""Seconds between two ticks."""


class Recorder:
    """`tick` and `summary` may be called from any thread; times are Unix seconds."""

    def __init__(self, now: float) -> None:
        self._lock = threading.Lock()
        self._names = Names()
        self._gains = Gains(now)
        self._trails: dict[Model, Trail] = {}
        self._met: set[str] = set()
        self._views: dict[str, View] = {}

    def tick(self, now: float, collectors: Iterable[TargetCollector], ledgers: Sequence[Ledger]) -> None:
        """Take in what targets and logs have published."""
        with self._lock:
            views = self._look(collectors)
            for one in views:
                self._feed_target(now, one)
            self._met = {one.name for one in views if one.models}
            for ledger in ledgers:
                self._feed_ledger(now, ledger)
            self._gains.commit(now)
            for model, parts in parts_by_scope(views, ledgers, self._names).items():
                trail = self._trails.setdefault(model, Trail(len(schema.COLUMNS)))
                trail.add(now, self._figures(model, parts))

    def summary(
        self,
        now: float,
        collectors: Iterable[TargetCollector],
        sources: Sequence[tables.Source],
        *,
        model: Model,
        exporter: schema.Exporter,
        problems: Iterable[str],
    ) -> schema.Summary | None:
        """`model` is that of the history; None if there is no such model."""
        ledgers = [source.ledger for source in sources]
        with self._lock:
            views = self._look(collectors)
            parts = parts_by_scope(views, ledgers, self._names)
            if model is not FLEET and model not in parts:
                return None
            scopes = [scope(name, parts[name], self._gains) for name in parts if name is not FLEET]
            scopes.sort(key=lambda one: (-_weight(one), one.model_name or ""))
            return schema.Summary(
                schema=schema.VERSION,
                generated_at=now,
                exporter=exporter,
                fleet=scope(FLEET, parts.get(FLEET, Parts()), self._gains),
                models=tables.listed(scopes, len(scopes)),
                history=self._history(model),
                cold=tables.cold(views, now),
                replicas=tables.replicas(views),
                groups=tables.groups(ledgers),
                data_quality=tables.data_quality(views, sources, problems, self._gains, now),
            )

    def _look(self, collectors: Iterable[TargetCollector]) -> list[View]:
        """A target that said nothing new since the last look is not read again."""
        views = [
            held
            if (held := self._views.get(each.who.target)) is not None and held.samples is each.samples
            else view(each)
            for each in collectors
        ]
        self._views = {one.name: one for one in views}
        return views

    def _feed_target(self, now: float, one: View) -> None:
        known = one.name in self._met
        anomalies = [float(one.collector.anomalies[reason]) for reason in c.ANOMALY_REASONS]
        for model in {FLEET, *map(self._names.admit, one.models)}:
            # Counted by this exporter, so from zero.
            self._gains.feed(now, one.name, Series(model, "anomalies", ""), anomalies, known=True)
        for name, part in one.models.items():
            for (rank, phase), state in part.ttft.items():
                for model in (FLEET, self._names.admit(name)):
                    series = Series(model, "engine", phase, state.edges)
                    source = (one.name, name, rank)
                    self._gains.feed(now, source, series, in_buckets(state), known=known)
            self._feed_requests(now, (one.name, name, "plugin"), part, known=known)

    def _feed_requests(
        self, now: float, source: tuple[str, str, str], part: ModelPart, *, known: bool
    ) -> None:
        """What the plugin inside the engine counted of one model."""
        counts = [part.outcomes.get(outcome, 0.0) for outcome in OUTCOMES]
        for model in (FLEET, self._names.admit(source[1])):
            if part.outcomes:
                self._gains.feed(now, source, Series(model, "outcomes", ""), counts, known=known)
            for outcome, state in part.request_ttft.items():
                series = Series(model, "request", outcome, state.edges)
                self._gains.feed(now, source, series, in_buckets(state), known=known)

    def _feed_ledger(self, now: float, ledger: Ledger) -> None:
        for name, totals in list(ledger.models.items()):
            counts = [float(totals.outcomes[outcome]) for outcome in OUTCOMES]
            for model in (FLEET, self._names.admit(name)):
                source = (ledger.source, name)
                self._gains.feed(now, source, Series(model, "outcomes", ""), counts, known=True)
                for outcome, histogram in list(totals.ttft.items()):
                    series = Series(model, "request", outcome, c.SECONDS_BUCKETS)
                    self._gains.feed(now, source, series, list(histogram.counts), known=True)

    def _figures(self, model: Model, parts: Parts) -> list[float | None]:
        """One value for each of the history's columns."""
        engine, log = engine_window(parts, _TRAIL_WINDOW), request_window(parts, _TRAIL_WINDOW)
        return [
            engine.token_hit_ratio,
            engine.request_hit_ratio,
            log.token_hit_ratio,
            log.request_hit_ratio,
            engine.preemptions_per_second,
            engine.evicted_tokens_per_second,
            largest(part.usage for part in parts.models),
            total(part.running for part in parts.models),
            total(part.waiting for part in parts.models),
            *(self._p95(model, outcome) for outcome in _TRAIL_OUTCOMES),
        ]

    def _p95(self, model: Model, outcome: str) -> float | None:
        state = self._gains.distribution(_TRAIL_WINDOW, model, "request", outcome)
        return None if state is None or (found := quantile(state, 0.95)) == float("inf") else found

    def _history(self, model: Model) -> schema.History:
        trail = self._trails.get(model, Trail(len(schema.COLUMNS)))
        columns = dict(zip(schema.COLUMNS, trail.columns(), strict=True))
        return schema.History(model_name=model, at=trail.at, **columns)


def _weight(one: Scope) -> float:
    """Prompt tokens or requests of the last hour: busy models first."""
    by_engines = one.engines.windows["1h"].prompt_tokens if one.engines else 0.0
    return by_engines or (one.requests.windows["1h"].requests if one.requests else 0.0)
