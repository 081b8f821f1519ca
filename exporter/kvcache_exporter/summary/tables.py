"""The lists of the summary: cold starts, worst replicas, worst groups, and data quality."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from kvcache_exporter import catalogue as c
from kvcache_exporter.hit_rates import ratio
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.scrape.derive import rate
from kvcache_exporter.scrape.summary import summary_of, token_totals
from kvcache_exporter.summary import schema
from kvcache_exporter.summary.blocks import Blocks
from kvcache_exporter.summary.gains import FLEET, Gains
from kvcache_exporter.summary.replicas import View, largest, total
from kvcache_exporter.summary.scopes import anomaly_counts

MOST_ROWS = 20
PREEMPTING, FULL = 0.05, 0.95
"""Preemptions a second and usage above which a replica is under pressure, as in the alerts."""
WINDOW = "5m"
_RECENT_SECONDS = 3600.0
T = TypeVar("T")


class Source(Protocol):
    """A followed log."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def lag_bytes(self) -> int: ...

    @property
    def lag_messages(self) -> int: ...

    @property
    def problems(self) -> tuple[str, ...]: ...


def listed(rows: Iterable[T], most: int = MOST_ROWS) -> schema.Listed[T]:
    found = list(rows)
    return schema.Listed(total=len(found), shown=found[:most])


def cold(views: Iterable[View], now: float) -> schema.Cold:
    starts = [start for view in views if (start := _start(view, now)) is not None]
    starts.sort(key=lambda s: (s.phase != "cold", s.age_seconds or 0.0, s.target))
    return schema.Cold(cold=sum(start.phase == "cold" for start in starts), starts=listed(starts))


def _start(view: View, now: float) -> schema.ColdStart | None:
    """The target's latest start, if it is still cold or the start was within the last hour."""
    lifecycle = view.collector.cold.lifecycle
    life, age = lifecycle.life, lifecycle.age(now)
    recent = age is not None and age <= _RECENT_SECONDS and bool(life.recent)
    if life.phase != "cold" and not recent:
        return None
    return schema.ColdStart(
        target=view.name,
        engine=view.engine,
        up=view.up,
        phase=life.phase,
        reason=life.recent[-1].reason if life.recent else "",
        age_seconds=age,
        recovery_ratio=lifecycle.recovery,
        warmup_seconds=life.warmup if life.phase == "warm" else None,
    )


def replicas(views: Iterable[View], evicted_blocks: Mapping[str, float]) -> list[schema.Replica]:
    """All that are up, the worst first; `evicted_blocks` is per second, by target."""
    found = [view for view in views if view.serves]
    common = _common_ratios(found)
    rows = [_replica(view, common, evicted_blocks.get(view.name)) for view in found if view.up]
    rows.sort(
        key=lambda r: (-(r.excess_tokens_per_second or 0.0), -(r.preemptions_per_second or 0.0), r.target)
    )
    return rows


def pressure(replicas: Iterable[schema.Replica]) -> schema.Pressure:
    preempting, full = [], []
    for one in replicas:
        if (preemptions := one.preemptions_per_second or 0.0) > PREEMPTING:
            preempting.append((-preemptions, one.target))
        if (one.usage_ratio or 0.0) > FULL and (waiting := one.waiting_requests or 0.0) > 0:
            full.append((-waiting, one.target))
    return schema.Pressure(
        preempting=listed(name for _, name in sorted(preempting)),
        full=listed(name for _, name in sorted(full)),
    )


def _common_ratios(views: Iterable[View]) -> dict[str, float | None]:
    """Token-weighted hit rate of each model over all replicas."""
    cached: defaultdict[str, float] = defaultdict(float)
    prompt: defaultdict[str, float] = defaultdict(float)
    for view in views:
        for model, part in view.models.items():
            found = token_totals(part.increases.get(WINDOW, ()))
            cached[model] += found[0]
            prompt[model] += found[1]
    return {model: ratio(cached[model], tokens) for model, tokens in prompt.items()}


def _replica(view: View, common: Mapping[str, float | None], evicted_blocks: float | None) -> schema.Replica:
    summary = summary_of(view.increases(WINDOW))
    parts = view.models.values()
    return schema.Replica(
        target=view.name,
        engine=view.engine,
        models=sorted(view.models)[:3],
        phase=view.phase,
        hit_basis=view.basis,
        token_hit_ratio=summary.token_hit_ratio,
        request_hit_ratio=summary.request_hit_ratio,
        excess_tokens_per_second=total(_excess(view, common)),
        preemptions_per_second=summary.preemptions_per_second,
        evicted_tokens_per_second=summary.evicted_tokens_per_second,
        evicted_blocks_per_second=evicted_blocks,
        usage_ratio=largest(part.usage for part in parts),
        running_requests=total(part.running for part in parts),
        waiting_requests=total(part.waiting for part in parts),
    )


def _excess(view: View, common: Mapping[str, float | None]) -> Iterator[float | None]:
    for model, part in view.models.items():
        ratio_of_all = common.get(model)
        for found in part.increases.get(WINDOW, ()):
            cached, prompt = token_totals([found])
            if ratio_of_all is not None and prompt > 0:
                # The only replica has exactly its model's rate; a fraction of a token is rounding.
                yield rate(round(ratio_of_all * prompt - cached, 3), found.seconds)


def groups(ledgers: Iterable[Ledger]) -> schema.Listed[schema.Group]:
    rows = [
        schema.Group(
            source=ledger.source,
            provider=provider,
            model_name=model,
            group=name,
            requests=found.known,
            token_hit_ratio=ratio(found.cached, found.prompt),
            request_hit_ratio=ratio(found.full, found.known),
            uncached_tokens=found.prompt - found.cached,
        )
        for ledger in ledgers
        for (provider, model, name), found in ledger.recent.get(WINDOW, {}).items()
        if found.known > 0
    ]
    rows.sort(key=lambda row: (-row.uncached_tokens, row.source, row.group))
    return listed(rows)


def data_quality(
    views: list[View],
    sources: Iterable[Source],
    blocks: Iterable[Blocks],
    gains: Gains,
    now: float,
    *,
    problems: Iterable[str],
) -> schema.DataQuality:
    totals = {reason: sum(view.collector.anomalies[reason] for view in views) for reason in c.ANOMALY_REASONS}
    down = [
        schema.DownTarget(target=view.name, error=view.collector.last_error)
        for view in views
        if not view.up and view.collector.last_error
    ]
    families = _families(views)
    return schema.DataQuality(
        targets=len(views),
        not_scraped=sum(not view.up and not view.collector.last_error for view in views),
        down=listed(down),
        anomalies=anomaly_counts(FLEET, gains, totals),
        incomplete_targets=sum(each.targets for each in families),
        families=listed(families),
        logs=listed(_log(source, now) for source in sources),
        events=listed(_events(blocks)),
        discovery_problems=listed(problems),
    )


def _families(views: Iterable[View]) -> list[schema.Families]:
    """One row for all replicas that lack the same families, the most common first."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for view in views:
        plan = view.collector.plan
        if plan is not None and (plan.missing or plan.deprecated):
            found[tuple(plan.missing), tuple(plan.deprecated)].append(view.name)
    rows = [
        schema.Families(
            targets=len(names), target=names[0], missing=list(missing), deprecated=list(deprecated)
        )
        for (missing, deprecated), names in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.targets, row.target))


def _events(blocks: Iterable[Blocks]) -> list[schema.EventHealth]:
    rows = [
        schema.EventHealth(
            target=each.target,
            heard=each.heard,
            lost_batches=round(each.lost),
            unreadable=round(each.unreadable),
            followed_ratio=each.followed,
            problem=each.source.problem or None,
        )
        for each in blocks
    ]
    return sorted(rows, key=lambda row: (row.problem is None, -row.lost_batches, row.heard, row.target))


def _log(source: Source, now: float) -> schema.LogHealth:
    health = source.ledger.health
    return schema.LogHealth(
        source=source.ledger.source,
        lines=health.lines,
        lag_bytes=source.lag_bytes,
        lag_messages=source.lag_messages,
        parse_failures={reason: n for reason, n in sorted(dict(health.failures).items()) if n},
        newest_record_age_seconds=None if health.newest is None else max(0.0, now - health.newest),
        problems=list(source.problems[:MOST_ROWS]),
    )
