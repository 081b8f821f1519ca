"""Block counts of KV event sources, and the summary's figures from them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvcache_exporter import catalogue as c
from kvcache_exporter.events.blocks import DEVICE
from kvcache_exporter.events.source import EventOptions
from kvcache_exporter.hit_rates import ratio
from kvcache_exporter.model import Distribution, Sample
from kvcache_exporter.summary import figures
from kvcache_exporter.summary.gains import FLEET, Gains, Model, Series


class Source(Protocol):
    """A running source of KV events."""

    @property
    def options(self) -> EventOptions: ...

    @property
    def samples(self) -> Sequence[Sample]: ...

    @property
    def problem(self) -> str: ...


@dataclass(slots=True)
class Blocks:
    """The counts of one source, over all ranks."""

    source: Source
    model: str | None = None
    """The model of its engine; None while unknown."""
    stored: Counter[str] = field(default_factory=Counter)
    """In blocks by tier, like the next two."""
    evicted: Counter[str] = field(default_factory=Counter)
    resident: dict[str, int] = field(default_factory=dict)
    """Empty until an event was received."""
    rewarmed: float = 0.0
    lost: float = 0.0
    """In batches."""
    unreadable: float = 0.0
    followed: float = 1.0
    """The smallest share of block hashes that any rank follows."""

    @property
    def target(self) -> str:
        return self.source.options.target

    @property
    def heard(self) -> bool:
        return bool(self.resident)

    @property
    def counts(self) -> list[float]:
        """The counts in the order that `_window` expects."""
        tiers = [counted[tier] for counted in (self.stored, self.evicted) for tier in c.TIERS]
        return [*map(float, tiers), self.rewarmed, self.lost]


def blocks_of(source: Source, models: Iterable[str]) -> Blocks:
    """`models` are those of the scraped target of the same name; only a single one identifies the model."""
    found = Blocks(source, source.options.model_name or None)
    served = list(models)
    if found.model is None and len(served) == 1:
        found.model = served[0]
    for metric, labels, value in source.samples:
        if not isinstance(value, Distribution):
            _read(found, metric, labels[-1], value)
    return found


def _read(found: Blocks, metric: c.Metric, label: str, value: float) -> None:
    """`label` is the metric's own label value, if it has one."""
    if metric is c.STORED_BLOCKS:
        found.stored[label] += int(value)
    elif metric is c.EVICTED_BLOCKS:
        found.evicted[label] += int(value)
    elif metric is c.RESIDENT_BLOCKS:
        found.resident[label] = found.resident.get(label, 0) + int(value)
    elif metric is c.REWARMED_BLOCKS:
        found.rewarmed += value
    elif metric is c.EVENTS_LOST:
        found.lost += value
    elif metric is c.EVENTS and label == "unreadable":
        found.unreadable += value
    elif metric is c.TRACKED_BLOCKS:
        found.followed = min(found.followed, value)


def series_of(model: Model) -> Series:
    return Series(model, "blocks", "")


def evictions_of(target: str) -> Series:
    """Blocks evicted from the device tier of one target."""
    return Series(FLEET, "evictions", target)


def events(found: Sequence[Blocks], model: Model, gains: Gains) -> figures.Events:
    heard = [each for each in found if each.heard]
    resident: Counter[str] = Counter()
    for each in heard:
        resident.update(each.resident)
    series = series_of(model) if heard else None
    return figures.Events(
        sources=len(found),
        sources_heard=len(heard),
        resident_blocks=dict(resident),
        followed_ratio=min((each.followed for each in heard), default=None),
        windows={window: event_window(gains, window, series) for window in c.WINDOWS},
    )


def event_window(gains: Gains, window: str, series: Series | None) -> figures.EventWindow:
    """Without a series no event was received."""
    counts = gains.counts(window, series) if series else None
    seconds = gains.seconds(window)
    if counts is None or seconds is None:
        return figures.EventWindow(
            stored_blocks_per_second={},
            evicted_blocks_per_second={},
            rewarmed_blocks_per_second=None,
            rewarmed_ratio=None,
            lost_batches=0,
        )
    several = len(c.TIERS)
    stored, evicted = (_by_tier(part, seconds) for part in (counts[:several], counts[several : 2 * several]))
    rewarmed, lost = counts[2 * several :]
    return figures.EventWindow(
        stored_blocks_per_second=stored,
        evicted_blocks_per_second=evicted,
        rewarmed_blocks_per_second=rewarmed / seconds,
        rewarmed_ratio=ratio(rewarmed, counts[c.TIERS.index(DEVICE)]),
        lost_batches=round(lost),
    )


def _by_tier(counts: Sequence[float], seconds: float) -> dict[str, float]:
    """Always with the device tier; with another tier only if it has any count."""
    return {
        tier: count / seconds for tier, count in zip(c.TIERS, counts, strict=True) if count or tier == DEVICE
    }


def evictions(window: figures.EventWindow) -> float | None:
    """Blocks per second from the device tier."""
    return window.evicted_blocks_per_second.get(DEVICE)


def evictions_of_targets(found: Iterable[Blocks], gains: Gains, window: str) -> Mapping[str, float]:
    """Blocks per second from the device tier, by target; without targets that sent no event."""
    seconds = gains.seconds(window)
    return {
        each.target: counts[0] / seconds
        for each in found
        if each.heard and seconds and (counts := gains.counts(window, evictions_of(each.target)))
    }
