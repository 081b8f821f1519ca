"""Records the last hour of the running exporter, and makes summaries of it."""

import threading
from collections.abc import Iterable, Sequence

from kvcache_exporter import catalogue as c
from kvcache_exporter.distributions import quantile
from kvcache_exporter.events.blocks import DEVICE
from kvcache_exporter.events.source import EventOptions
from kvcache_exporter.model import OUTCOMES
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.summary import blocks as b
from kvcache_exporter.summary import costs, schema, tables
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
"""Seconds between ticks."""


class Recorder:
    """`tick` and `summary` may be called from any thread; times are Unix seconds."""

    def __init__(self, now: float) -> None:
        self._lock = threading.Lock()
        self._names = Names()
        self._gains = Gains(now)
        self._trails: dict[Model, Trail] = {}
        self._met: set[str] = set()
        self._views: dict[str, View] = {}
        self._models: dict[EventOptions, tuple[str, int]] = {}
        """The model of each source of events, and how often it has changed."""

    def tick(
        self,
        now: float,
        collectors: Iterable[TargetCollector],
        ledgers: Sequence[Ledger],
        events: Iterable[b.Source],
    ) -> None:
        """Record the current state of targets, logs and sources of KV events."""
        with self._lock:
            views = self._look(collectors)
            for one in views:
                self._feed_target(now, one)
            self._met = {one.name for one in views if one.models}
            for ledger in ledgers:
                self._feed_ledger(now, ledger)
            blocks = self._blocks(events)
            self._feed_blocks(now, blocks)
            self._gains.commit(now)
            for model, parts in parts_by_scope(views, ledgers, blocks, self._names).items():
                trail = self._trails.setdefault(model, Trail(len(schema.COLUMNS)))
                trail.add(now, self._figures(model, parts))

    def summary(
        self,
        now: float,
        collectors: Iterable[TargetCollector],
        sources: Sequence[tables.Source],
        events: Iterable[b.Source],
        *,
        model: Model,
        exporter: schema.Exporter,
        problems: Iterable[str],
    ) -> schema.Summary | None:
        """The summary, with the history of `model` (None: the fleet); None if the model is unknown."""
        ledgers = [source.ledger for source in sources]
        with self._lock:
            views, blocks = self._look(collectors), self._blocks(events)
            parts = parts_by_scope(views, ledgers, blocks, self._names)
            if model is not FLEET and model not in parts:
                return None
            scopes = [scope(name, parts[name], self._gains) for name in parts if name is not FLEET]
            scopes.sort(key=lambda one: (-_weight(one), one.model_name or ""))
            evicted = b.evictions_of_targets(blocks, self._gains, tables.WINDOW)
            replicas = tables.replicas(views, evicted)
            return schema.Summary(
                schema=schema.VERSION,
                generated_at=now,
                exporter=exporter,
                fleet=scope(FLEET, parts.get(FLEET, Parts()), self._gains),
                models=tables.listed(scopes, len(scopes)),
                history=self._history(now, model, parts.get(model, Parts())),
                cold=tables.cold(views, now),
                pressure=tables.pressure(replicas),
                replicas=tables.listed(replicas),
                groups=tables.groups(ledgers),
                data_quality=tables.data_quality(views, sources, blocks, self._gains, now, problems=problems),
            )

    def _look(self, collectors: Iterable[TargetCollector]) -> list[View]:
        """Views of the targets; one without a new page since the last call is not read again."""
        views = [
            held
            if (held := self._views.get(each.who.target)) is not None and held.samples is each.samples
            else view(each)
            for each in collectors
        ]
        self._views = {one.name: one for one in views}
        return views

    def _blocks(self, sources: Iterable[b.Source]) -> list[b.Blocks]:
        """To be called after `_look`: a source without a model takes that of the target with its name."""
        models = {one.name: one.models for one in self._views.values() if one.serves}
        return [b.blocks_of(source, models.get(source.options.target, ())) for source in sources]

    def _feed_target(self, now: float, one: View) -> None:
        known = one.name in self._met
        anomalies = [float(one.collector.anomalies[reason]) for reason in c.ANOMALY_REASONS]
        for model in {FLEET, *map(self._names.admit, one.models)}:
            # This exporter's own counter, so it starts at zero.
            self._gains.feed(now, one.name, Series(model, "anomalies", ""), anomalies, known=True)
        for name, part in one.models.items():
            for (rank, phase), state in part.ttft.items():
                for model in (FLEET, self._names.admit(name)):
                    series = Series(model, "engine", phase, state.edges)
                    source = (one.name, name, rank, one.collector.cold.beginnings)
                    self._gains.feed(now, source, series, in_buckets(state), known=known)
            self._feed_requests(now, (one.name, name, "plugin"), part, known=known)

    def _feed_requests(
        self, now: float, source: tuple[str, str, str], part: ModelPart, *, known: bool
    ) -> None:
        """Feed one model's requests from the plugin inside the engine."""
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
                if totals.money.priced + totals.money.unpriced:
                    spent = costs.counts_of(totals.money)
                    self._gains.feed(now, source, costs.series_of(model), spent, known=True)

    def _feed_blocks(self, now: float, found: Iterable[b.Blocks]) -> None:
        for each in found:
            options = each.source.options
            self._gains.feed(now, options, b.series_of(FLEET), each.counts, known=True)
            evicted = [float(each.evicted[DEVICE])]
            self._gains.feed(now, options, b.evictions_of(each.target), evicted, known=True)
            if each.model is not None:
                # Counts stay with the former model when an engine comes back with another one.
                before, turn = self._models.get(options, (each.model, 0))
                turn += before != each.model
                self._models[options] = each.model, turn
                series = b.series_of(self._names.admit(each.model))
                self._gains.feed(now, (options, turn), series, each.counts, known=not turn)

    def _figures(self, model: Model, parts: Parts) -> list[float | None]:
        """One value for each column of the history."""
        engine, log = engine_window(parts, _TRAIL_WINDOW), request_window(parts, _TRAIL_WINDOW)
        events = b.events(parts.blocks, model, self._gains).windows[_TRAIL_WINDOW]
        return [
            engine.token_hit_ratio,
            engine.request_hit_ratio,
            log.token_hit_ratio,
            log.request_hit_ratio,
            engine.preemptions_per_second,
            engine.evicted_tokens_per_second,
            b.evictions(events),
            events.rewarmed_blocks_per_second,
            largest(part.usage for part in parts.models),
            total(part.running for part in parts.models),
            total(part.waiting for part in parts.models),
            *(self._p95(model, outcome) for outcome in _TRAIL_OUTCOMES),
        ]

    def _p95(self, model: Model, outcome: str) -> float | None:
        state = self._gains.distribution(_TRAIL_WINDOW, model, "request", outcome)
        return None if state is None or (found := quantile(state, 0.95)) == float("inf") else found

    def _history(self, now: float, model: Model, parts: Parts) -> schema.History:
        """Up to the present, whose figures stand beside it."""
        trail = self._trails.get(model, Trail(len(schema.COLUMNS))).until(now, self._figures(model, parts))
        columns = dict(zip(schema.COLUMNS, trail.columns(), strict=True))
        return schema.History(model_name=model, at=trail.at, **columns)


def _weight(one: Scope) -> float:
    """Prompt tokens or requests of the last hour: busy models first."""
    by_engines = one.engines.windows["1h"].prompt_tokens if one.engines else 0.0
    return by_engines or (one.requests.windows["1h"].requests if one.requests else 0.0)
