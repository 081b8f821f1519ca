"""Samples to text, in the Prometheus format or OpenMetrics, which differ only in the comment lines.

A source renders its samples into a `Block` when they change, so that a page only joins headers and blocks,
however many targets there are.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvcache_exporter.catalogue import CATALOGUE, DROPPED_SERIES, Metric
from kvcache_exporter.model import Distribution, Sample


class Chunk(NamedTuple):
    """Sample lines of one family, and how many label sets they hold (a histogram counts once)."""

    series: int
    text: str


Block = Mapping[Metric, Chunk]
"""The rendered samples of one source (a target, a log, the exporter itself) by metric."""
_CLASSIC_KINDS = {"info": "gauge", "unknown": "untyped"}
"""Names in the Prometheus format of the types that only OpenMetrics has."""
Extra = tuple[tuple[str, str], ...]
"""Labels from the configuration, added to every sample of a source."""


def number(value: float) -> str:
    if value != value:  # noqa: PLR0124 -- the one test for NaN that costs no call
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Renderer:
    """Renders the samples of one source; caches the text before each value, since labels rarely change."""

    def __init__(self, extra: Extra = (), limit: int = 100_000) -> None:
        self._extra = [f'{name}="{escape(value)}"' for name, value in extra]
        self._limit = limit
        self._plain: dict[tuple[Metric, tuple[str, ...]], str] = {}
        self._histograms: dict[tuple[Metric, tuple[str, ...], tuple[float, ...]], list[str]] = {}

    def block(self, samples: Iterable[Sample]) -> dict[Metric, Chunk]:
        if len(self._plain) + len(self._histograms) > self._limit:
            self._plain.clear()
            self._histograms.clear()
        lines: dict[Metric, list[str]] = defaultdict(list)
        counts: dict[Metric, int] = defaultdict(int)
        for metric, labels, value in samples:
            counts[metric] += 1
            if isinstance(value, Distribution):
                lines[metric] += self._histogram_lines(metric, labels, value)
            else:
                lines[metric].append(f"{self._start(metric, labels)}{number(value)}\n")
        return {metric: Chunk(counts[metric], "".join(found)) for metric, found in lines.items()}

    def _pairs(self, metric: Metric, labels: tuple[str, ...]) -> list[str]:
        named = zip(metric.labels, labels, strict=True)
        return [*(f'{name}="{escape(value)}"' for name, value in named if value), *self._extra]

    def _start(self, metric: Metric, labels: tuple[str, ...]) -> str:
        start = self._plain.get((metric, labels))
        if start is None:
            pairs = ",".join(self._pairs(metric, labels))
            start = self._plain[metric, labels] = f"{metric.name}{{{pairs}}} " if pairs else f"{metric.name} "
        return start

    def _histogram_lines(self, metric: Metric, labels: tuple[str, ...], state: Distribution) -> list[str]:
        starts = self._histograms.get((metric, labels, state.edges))
        if starts is None:
            starts = self._histograms[metric, labels, state.edges] = self._starts(metric, labels, state.edges)
        values = (*state.counts, state.sum, state.counts[-1])
        return [f"{start}{number(value)}\n" for start, value in zip(starts, values, strict=True)]

    def _starts(self, metric: Metric, labels: tuple[str, ...], edges: tuple[float, ...]) -> list[str]:
        pairs = self._pairs(metric, labels)
        bounds = [f'le="{bound}"' for bound in (*map(number, edges), "+Inf")]
        buckets = [f"{metric.name}_bucket{{{','.join([*pairs, bound])}}} " for bound in bounds]
        rest = f"{{{','.join(pairs)}}} " if pairs else " "
        return [*buckets, f"{metric.name}_sum{rest}", f"{metric.name}_count{rest}"]


def header(metric: Metric, *, openmetrics: bool) -> str:
    name = metric.family if openmetrics else metric.name
    kind = metric.kind if openmetrics else _CLASSIC_KINDS.get(metric.kind, metric.kind)
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n"


class Page:
    """Joins blocks into one page, with at most `limit` label sets per metric."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active = 0
        """Label sets on the last page."""
        self._dropped: dict[Metric, int] = defaultdict(int)

    def text(self, blocks: Iterable[Block], *, openmetrics: bool = False) -> str:
        """Earlier blocks win once the limit is reached; a source's block is dropped as a whole."""
        found: dict[Metric, list[Chunk]] = defaultdict(list)
        for block in blocks:
            for metric, chunk in block.items():
                found[metric].append(chunk)
        self.active = 0
        parts: list[str] = []
        for metric in CATALOGUE:
            if metric in found and metric is not DROPPED_SERIES:
                parts.append(header(metric, openmetrics=openmetrics))
                parts += self._admit(metric, found[metric])
        parts.append(self._dropped_text(openmetrics=openmetrics))
        return "".join(parts)

    def _admit(self, metric: Metric, chunks: list[Chunk]) -> list[str]:
        admitted, used = [], 0
        for chunk in chunks:
            if used + chunk.series <= self.limit:
                used += chunk.series
                admitted.append(chunk.text)
            else:
                self._dropped[metric] += chunk.series
        self.active += used
        return admitted

    def _dropped_text(self, *, openmetrics: bool) -> str:
        samples = [Sample(DROPPED_SERIES, (metric.name,), float(n)) for metric, n in self._dropped.items()]
        if not samples:
            return ""
        return (
            header(DROPPED_SERIES, openmetrics=openmetrics) + Renderer().block(samples)[DROPPED_SERIES].text
        )


def exposition(samples: Iterable[Sample], *, openmetrics: bool = False) -> str:
    """A complete page of these samples, without a limit."""
    text = Page(limit=2**62).text([Renderer().block(samples)], openmetrics=openmetrics)
    return text + ("# EOF\n" if openmetrics else "")
