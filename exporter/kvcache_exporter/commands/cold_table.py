"""The table of `replay --cold`: each cold start compared with the warm time of the same target."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kvcache_exporter import catalogue as c
from kvcache_exporter.demo.answers import percent
from kvcache_exporter.distributions import quantile
from kvcache_exporter.model import Distribution
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.derive import token_increases

_HEADS = (
    "target",
    "started",
    "reason",
    "cold for",
    "hit rate",
    "warm",
    "TTFT p50",
    "p99",
    "warm p50",
    "p99",
    "p99 ratio",
)
_WIDTHS = (24, 19, 18, 9, 8, 8, 9, 8, 9, 8, 9)


@dataclass(slots=True)
class Stretch:
    """Tokens and TTFT of a target over a stretch of cold or warm time."""

    cached: float = 0.0
    prompt: float = 0.0
    ttft: Distribution | None = None

    def add(self, cached: float, prompt: float, ttft: Distribution | None) -> None:
        self.cached += cached
        self.prompt += prompt
        if ttft is None:
            return
        if self.ttft is None or self.ttft.edges != ttft.edges:
            self.ttft = ttft
            return
        counts = tuple(a + b for a, b in zip(self.ttft.counts, ttft.counts, strict=True))
        self.ttft = Distribution(ttft.edges, counts, self.ttft.sum + ttft.sum)

    @property
    def hit_ratio(self) -> float | None:
        return self.cached / self.prompt if self.prompt else None


@dataclass(slots=True)
class ColdTable:
    """Follows one target through a replay."""

    collector: TargetCollector
    cold: list[Stretch] = field(default_factory=list)
    """One for each entry of the life's `recent`."""
    warm: Stretch = field(default_factory=Stretch)
    _before: dict[str, Distribution] = field(default_factory=dict)

    def page(self) -> None:
        """Take in the page that the collector has just read."""
        starts = len(self.collector.cold.lifecycle.life.recent)
        while len(self.cold) < starts:
            self.cold.append(Stretch())
        now = _ttft_by_phase(self.collector)
        cached, prompt = _step(self.collector)
        phase = self.collector.cold.page_phase
        for name in c.PHASES:
            stretch = self.cold[-1] if name == "cold" and self.cold else self.warm
            grown = _grown(self._before.get(name), now.get(name))
            stretch.add(*((cached, prompt) if name == phase else (0.0, 0.0)), grown)
        self._before = now


def cold_table(tables: Iterable[ColdTable]) -> Iterator[str]:
    """Lines to print."""
    yield _row(_HEADS)
    for table in tables:
        recent = table.collector.cold.lifecycle.life.recent
        for start, stretch in zip(recent, table.cold, strict=True):
            ended = "not yet" if start.warm_at is None else f"{start.warm_at - start.at:.0f} s"
            cold, warm = (_quantiles(part.ttft) for part in (stretch, table.warm))
            ratio = f"{cold[1] / warm[1]:.1f}" if cold and warm and warm[1] else "-"
            yield _row((
                table.collector.who.target,
                f"{datetime.fromtimestamp(start.at, UTC):%Y-%m-%d %H:%M:%S}",
                start.reason,
                ended,
                percent(stretch.hit_ratio).strip(),
                percent(table.warm.hit_ratio).strip(),
                *(f"{value:g}" for value in cold or ()),
                *(() if cold else ("-", "-")),
                *(f"{value:g}" for value in warm or ()),
                *(() if warm else ("-", "-")),
                ratio,
            ))  # fmt: skip


def _row(cells: Iterable[str]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _quantiles(ttft: Distribution | None) -> tuple[float, float] | None:
    if ttft is None or not ttft.edges or not ttft.counts[-1]:
        return None
    return quantile(ttft, 0.5), quantile(ttft, 0.99)


def _step(collector: TargetCollector) -> tuple[float, float]:
    step = collector.last_step()
    return token_increases(collector.watched.values(), step) if step else (0.0, 0.0)


def _ttft_by_phase(collector: TargetCollector) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    for sample in collector.samples:
        if sample.metric is c.ENGINE_TTFT and isinstance(sample.value, Distribution):
            stretch = Stretch(ttft=found.get(sample.labels[-1]))
            stretch.add(0.0, 0.0, sample.value)
            if stretch.ttft is not None:
                found[sample.labels[-1]] = stretch.ttft
    return found


def _grown(before: Distribution | None, now: Distribution | None) -> Distribution | None:
    """What was observed since `before`; everything if the engine has restarted."""
    if now is None or before is None or before.edges != now.edges or now.counts[-1] < before.counts[-1]:
        return now
    counts = tuple(n - b for n, b in zip(now.counts, before.counts, strict=True))
    return Distribution(now.edges, counts, now.sum - before.sum)
