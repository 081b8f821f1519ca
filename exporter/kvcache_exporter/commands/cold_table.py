"""The table of `replay --cold`: each cold start compared with the warm time of the same target."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kvcache_exporter import catalogue as c
from kvcache_exporter.demo.answers import percent
from kvcache_exporter.distributions import merged, quantile
from kvcache_exporter.model import Distribution
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.derive import token_increases
from kvcache_exporter.scrape.lifecycle import ColdStart

_HEADS = (
    "target",
    "started (UTC)",
    "reason",
    "cold for",
    "hits cold",
    "warm",
    "TTFT p50 cold",
    "warm",
    "p99 cold",
    "warm",
    "p99 cold/warm",
)
NOTE = "hits: by tokens; TTFT: upper edge of the bucket; warm: the target's warm time as a whole"


@dataclass(slots=True)
class Stretch:
    """Tokens and TTFT of a target over a stretch of cold or warm time."""

    cached: float = 0.0
    prompt: float = 0.0
    ttft: Distribution | None = None

    def add(self, cached: float, prompt: float, ttft: Distribution | None) -> None:
        self.cached += cached
        self.prompt += prompt
        if ttft is not None:
            self.ttft = merged([self.ttft, ttft]) if self.ttft else ttft

    @property
    def hit_ratio(self) -> float | None:
        return self.cached / self.prompt if self.prompt else None


@dataclass(slots=True)
class ColdTable:
    """Follows one target through a replay."""

    collector: TargetCollector
    cold: list[tuple[ColdStart, Stretch]] = field(default_factory=list)
    """Every cold start, of which the life itself remembers only the last ones."""
    warm: Stretch = field(default_factory=Stretch)
    _before: dict[str, Distribution] = field(default_factory=dict)
    _beginnings: int = 0

    def page(self) -> None:
        """Take in the page that the collector has just read."""
        watch = self.collector.cold
        last = watch.lifecycle.life.recent[-1:]
        if last and not (self.cold and self.cold[-1][0] is last[0]):
            self.cold.append((last[0], Stretch()))
        if watch.beginnings != self._beginnings:
            self._beginnings, self._before = watch.beginnings, {}
        now = _ttft_by_phase(self.collector)
        cached, prompt = _step(self.collector)
        phase = watch.page_phase
        for name in c.PHASES:
            stretch = self.cold[-1][1] if name == "cold" and self.cold else self.warm
            grown = _grown(self._before.get(name), now.get(name))
            stretch.add(*((cached, prompt) if name == phase else (0.0, 0.0)), grown)
        self._before = now


def cold_table(tables: Iterable[ColdTable]) -> Iterator[str]:
    """Lines to print."""
    rows = [_HEADS, *(row for table in tables for row in _rows(table))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    yield NOTE


def _rows(table: ColdTable) -> Iterator[tuple[str, ...]]:
    warm = table.warm
    for number, (start, cold) in enumerate(table.cold):
        pairs = list(zip(_quantiles(cold.ttft), _quantiles(warm.ttft), strict=True))
        slower = [c / w for c, w in pairs[1:] if c is not None and w]
        yield (
            table.collector.who.target,
            f"{datetime.fromtimestamp(start.at, UTC):%Y-%m-%d %H:%M:%S}",
            start.reason,
            _lasted(start, table.cold[number + 1 :]),
            percent(cold.hit_ratio).strip(),
            percent(warm.hit_ratio).strip(),
            *("-" if value is None else f"{value:g} s" for pair in pairs for value in pair),
            *([f"{slower[0]:.1f}"] if slower else ["-"]),
        )


def _lasted(start: ColdStart, later: Sequence[tuple[ColdStart, Stretch]]) -> str:
    """How long it was cold; of one that had not ended when the next one began, how long that was."""
    if start.warm_at is not None:
        return f"{start.warm_at - start.at:.0f} s"
    return f"over {later[0][0].at - start.at:.0f} s" if later else "not over"


def _quantiles(ttft: Distribution | None) -> tuple[float | None, float | None]:
    """Half and 99 % of requests had their first token in so many seconds; None without requests."""
    if ttft is None or not ttft.edges or not ttft.counts[-1]:
        return None, None
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
    """What was observed since `before`; everything if the engine has restarted, None if the edges differ."""
    if now is None or before is None or now.counts[-1] < before.counts[-1]:
        return now
    if before.edges != now.edges:
        return None
    counts = tuple(n - b for n, b in zip(now.counts, before.counts, strict=True))
    return Distribution(now.edges, counts, now.sum - before.sum)
