"""Figures of one model or of the fleet, from engines and from requests (logs, the plugin)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvcache_exporter import catalogue as c
from kvcache_exporter.distributions import quantile
from kvcache_exporter.hit_rates import RequestIncreases, ratio
from kvcache_exporter.model import OUTCOMES, Distribution
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.scrape.summary import summary_of, token_totals
from kvcache_exporter.summary import figures, schema
from kvcache_exporter.summary.blocks import Blocks, events
from kvcache_exporter.summary.costs import costs
from kvcache_exporter.summary.gains import (
    FLEET,
    MOST_MODELS,
    OTHER,
    SUMMED_WINDOWS,
    Gains,
    Model,
    Series,
    in_buckets,
)
from kvcache_exporter.summary.replicas import ModelPart, View, largest, total

INF = float("inf")
_BASIS_LOOKUP = "lookup"


class Names:
    """Assigns models to scopes: their own for the first MOST_MODELS models, `other` for the rest."""

    def __init__(self) -> None:
        self._admitted: set[str] = set()

    def admit(self, model: str) -> str:
        if model not in self._admitted and len(self._admitted) >= MOST_MODELS:
            return OTHER
        self._admitted.add(model)
        return model

    def scopes(self, model: str | None) -> tuple[Model, ...]:
        """The scopes of a model's figures; without a known model only the fleet."""
        return (FLEET,) if model is None else (FLEET, self.admit(model))


@dataclass(slots=True)
class Parts:
    """The inputs of one scope."""

    views: list[View] = field(default_factory=list)
    models: list[ModelPart] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    groups: dict[str, list[RequestIncreases]] = field(default_factory=lambda: defaultdict(list))
    """By window."""
    blocks: list[Blocks] = field(default_factory=list)


def parts_by_scope(
    views: Iterable[View], ledgers: Iterable[Ledger], blocks: Iterable[Blocks], names: Names
) -> dict[Model, Parts]:
    scopes: dict[Model, Parts] = defaultdict(Parts)
    for view in views:
        if view.serves:
            _add_target(scopes, view, names)
    for ledger in ledgers:
        for model in {FLEET, *map(names.admit, list(ledger.models))}:
            scopes[model].sources.add(ledger.source)
        for window, groups in ledger.recent.items():
            for group, found in groups.items():
                for model in (FLEET, names.admit(group[1])):
                    scopes[model].groups[window].append(found)
    for each in blocks:
        for model in names.scopes(each.model):
            scopes[model].blocks.append(each)
    return scopes


def _add_target(scopes: dict[Model, Parts], view: View, names: Names) -> None:
    # A target that never answered has no known model, but belongs to the fleet.
    for model in {FLEET, *map(names.admit, view.models)}:
        scopes[model].views.append(view)
    for name, part in view.models.items():
        for model in (FLEET, names.admit(name)):
            scopes[model].models.append(part)
            if part.outcomes:
                # One source for all targets: there may be a thousand.
                scopes[model].sources.add(f"{view.engine} plugin")
            for window, gained in part.requests.items():
                scopes[model].groups[window].append(gained)


def scope(model: Model, parts: Parts, gains: Gains) -> figures.Scope:
    return figures.Scope(
        model_name=model,
        engines=_engines(model, parts, gains) if parts.views else None,
        requests=_requests(model, parts, gains) if parts.sources else None,
        events=events(parts.blocks, model, gains) if parts.blocks else None,
    )


def _engines(model: Model, parts: Parts, gains: Gains) -> figures.Engines:
    up = [view for view in parts.views if view.up]
    basis = sorted({view.basis for view in up if view.basis})
    return figures.Engines(
        targets=len(parts.views),
        targets_up=len(up),
        targets_cold=sum(view.phase == "cold" for view in parts.views),
        hit_basis=basis,
        suspect=[*(["lookup_basis"] if _BASIS_LOOKUP in basis else []), *_recent_anomalies(model, gains)],
        request_hit_threshold_tokens=largest(part.threshold for part in parts.models),
        usage_ratio=largest(part.usage for part in parts.models),
        running_requests=total(part.running for part in parts.models),
        waiting_requests=total(part.waiting for part in parts.models),
        windows={window: engine_window(parts, window) for window in c.WINDOWS},
        ttft=_latencies(gains, model, "engine", c.PHASES),
    )


def engine_window(parts: Parts, window: str) -> figures.EngineWindow:
    found = [one for part in parts.models for one in part.increases.get(window, ())]
    summary = summary_of(found)
    return figures.EngineWindow(
        seconds=max((one.seconds for one in found), default=None),
        **summary._asdict(),
        gap=_gap(summary.token_hit_ratio, summary.request_hit_ratio),
        prompt_tokens=token_totals(found)[1],
    )


def request_window(parts: Parts, window: str) -> figures.RequestWindow:
    found = parts.groups.get(window, ())
    cached, prompt, full, known = (sum(column) for column in zip((0.0,) * 4, *found, strict=True))
    by_tokens, by_requests = ratio(cached, prompt), ratio(full, known)
    return figures.RequestWindow(
        token_hit_ratio=by_tokens,
        request_hit_ratio=by_requests,
        gap=_gap(by_tokens, by_requests),
        requests=known,
    )


def _requests(model: Model, parts: Parts, gains: Gains) -> figures.Requests:
    return figures.Requests(
        sources=sorted(parts.sources),
        windows={window: request_window(parts, window) for window in c.WINDOWS},
        outcomes={window: _outcomes(gains, model, window) for window in SUMMED_WINDOWS},
        ttft=_latencies(gains, model, "request", OUTCOMES),
        costs=costs(gains, model),
    )


def _outcomes(gains: Gains, model: Model, window: str) -> dict[str, int]:
    counts = gains.counts(window, Series(model, "outcomes", "")) or [0.0] * len(OUTCOMES)
    return {outcome: round(count) for outcome, count in zip(OUTCOMES, counts, strict=True)}


def _latencies(
    gains: Gains, model: Model, kind: str, names: Sequence[str]
) -> dict[str, dict[str, figures.Latency]]:
    return {
        window: {
            name: latency(state)
            for name in names
            if (state := gains.distribution(window, model, kind, name)) is not None
        }
        for window in SUMMED_WINDOWS
    }


def latency(state: Distribution) -> figures.Latency:
    p50, p95, p99 = (None if (edge := quantile(state, q)) == INF else edge for q in (0.5, 0.95, 0.99))
    return figures.Latency(
        count=round(state.counts[-1]),
        edges_seconds=list(state.edges),
        counts=[round(count) for count in in_buckets(state)],
        estimates=figures.Estimates(
            p50_at_most_seconds=p50, p95_at_most_seconds=p95, p99_at_most_seconds=p99
        ),
    )


def _gap(by_tokens: float | None, by_requests: float | None) -> float | None:
    return None if by_tokens is None or by_requests is None else by_tokens - by_requests


def _recent_anomalies(model: Model, gains: Gains) -> Iterator[str]:
    counts = gains.counts("1h", Series(model, "anomalies", "")) or ()
    yield from (reason for reason, count in zip(c.ANOMALY_REASONS, counts, strict=False) if count > 0)


def anomaly_counts(model: Model, gains: Gains, totals: Mapping[str, int]) -> list[schema.Anomaly]:
    """Counts of all reasons that ever occurred."""
    recent = gains.counts("1h", Series(model, "anomalies", "")) or [0.0] * len(c.ANOMALY_REASONS)
    return [
        schema.Anomaly(reason=reason, last_hour=round(count), total=totals[reason])
        for reason, count in zip(c.ANOMALY_REASONS, recent, strict=True)
        if totals.get(reason)
    ]
