"""Increases over windows, in bounded memory, of counters for which /metrics relies on Prometheus."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.distributions import merged
from kvcache_exporter.model import Distribution
from kvcache_exporter.windows import History, Span, Terms

FLEET = None
OTHER = "other"
MOST_MODELS = 32
"""Models with separate figures; requests of further models count as `other`."""
MOST_EDGES = 64
_MOST_LAYOUTS = 2
"""Different sets of bucket edges that are kept for one series."""
RESOLUTION = 120
_LONGEST = max(c.WINDOWS.values())
SUMMED_WINDOWS = ("5m", "1h")
"""Length of the longest vector: counts by bucket, and the sum."""

Model = str | None
"""A model_name, or None for the fleet."""


class Series(NamedTuple):
    """The identity of a vector, including a histogram's edges."""

    model: Model
    kind: str
    name: str
    edges: tuple[float, ...] = ()


class Vector:
    """The increase of a series since the exporter started; `columns` are its columns in the history."""

    def __init__(self, number: int, length: int) -> None:
        self.gained = [0.0] * length
        self.columns = [(number, place) for place in range(length)]


class Gains:
    """Adds up, by series, the increases of cumulative vectors from many sources."""

    def __init__(self, now: float) -> None:
        self._history = History(_LONGEST, RESOLUTION)
        # An empty first row: what appears later is counted from zero.
        self._history.add(now, ())
        self._last: dict[Hashable, tuple[float, tuple[float, ...]]] = {}
        self._vectors: dict[Series, Vector] = {}
        self._layouts: dict[tuple[Model, str, str], list[Series]] = defaultdict(list)

    def feed(
        self, now: float, source: Hashable, series: Series, values: Iterable[float], *, known: bool
    ) -> None:
        """Feed cumulative `values`; a new source counts from zero if `known` to have started since."""
        new = tuple(values)
        _, before = self._last.get((source, series), (0.0, None if known else new))
        if before is None or any(value < old for value, old in zip(new, before, strict=True)):
            before = (0.0,) * len(new)
        self._last[source, series] = (now, new)
        if (vector := self._vector(series, len(new))) is not None:
            gained = vector.gained
            for place, (value, old) in enumerate(zip(new, before, strict=True)):
                gained[place] += value - old

    def commit(self, now: float) -> None:
        """End a step of the windows, and forget sources that have been silent for longer than any window."""
        column = self._history.column
        pairs = [
            (column(name), value)
            for vector in self._vectors.values()
            for name, value in zip(vector.columns, vector.gained, strict=True)
        ]
        self._history.add(now, pairs)
        self._last = {key: held for key, held in self._last.items() if held[0] > now - _LONGEST}

    def counts(self, window: str, series: Series) -> list[float] | None:
        """The increase of a series in a window; None if there is no such series."""
        span, vector = self._history.span(c.WINDOWS[window]), self._vectors.get(series)
        return None if span is None or vector is None else self._increases(span, vector)

    def seconds(self, window: str) -> float | None:
        """Actual length of a window in seconds; None before the second step."""
        span = self._history.span(c.WINDOWS[window])
        return span.seconds if span else None

    def distribution(self, window: str, model: Model, kind: str, name: str) -> Distribution | None:
        """The merged histograms of one name over all sets of edges; None without observations."""
        layouts = self._layouts.get((model, kind, name), ())
        found = [(s.edges, counts) for s in layouts if (counts := self.counts(window, s)) and any(counts)]
        return merged([_cumulated(edges, counts) for edges, counts in found]) if found else None

    def _increases(self, span: Span, vector: Vector) -> list[float]:
        return [span.increase(Terms((self._history.column(name),))) for name in vector.columns]

    def _vector(self, series: Series, length: int) -> Vector | None:
        """The vector of a series; None if another set of edges would take too much memory."""
        vector = self._vectors.get(series)
        layouts = self._layouts[series[:3]]
        if vector is None and len(series.edges) <= MOST_EDGES and len(layouts) < _MOST_LAYOUTS:
            vector = self._vectors[series] = Vector(len(self._vectors), length)
            layouts.append(series)
        return vector


def in_buckets(state: Distribution) -> list[float]:
    """Counts by bucket, not cumulative."""
    return [state.counts[0], *(high - low for low, high in pairwise(state.counts))]


def _cumulated(edges: tuple[float, ...], counts: Sequence[float]) -> Distribution:
    return Distribution(edges, tuple(accumulate(counts)), 0.0)
