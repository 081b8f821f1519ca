"""Splits a histogram by the phase, cold or warm, in which each observation was made.

Both parts reset with the engine's own histogram, and add up to it.
"""

from collections.abc import Iterator

import msgspec

from kvcache_exporter.model import Distribution
from kvcache_exporter.scrape.lifecycle import Phase


class Split(msgspec.Struct):
    """Observations of each phase up to the last change of phase, and the engine's histogram at that time."""

    edges: tuple[float, ...]
    gained: dict[str, list[float]]
    """Counts and, last, the sum; by phase."""
    base: list[float]


class PhaseSplitter:
    """The histograms of one target, by any key."""

    def __init__(self, splits: dict[str, Split] | None = None) -> None:
        self.splits = splits or {}

    def restart(self) -> None:
        """The engine's counters restarted."""
        self.splits.clear()

    def turn(self, key: str, shown: Distribution, phase: Phase) -> None:
        """Later observations belong to another phase; `phase` is the one that ends."""
        self.splits[key] = Split(shown.edges, dict(self._parts(key, shown, phase)), _vector(shown))

    def split(self, key: str, shown: Distribution, phase: Phase) -> Iterator[tuple[str, Distribution]]:
        """The engine's histogram by phase; phases without observations are left out."""
        split = self.splits.get(key)
        if split is not None and shown.counts[-1] < split.base[-2]:
            # It restarted, and would be taken for the old one once it has grown as large.
            del self.splits[key]
        for name, values in self._parts(key, shown, phase):
            if values[-2] > 0:
                yield name, Distribution(shown.edges, tuple(values[:-1]), values[-1])

    def _parts(self, key: str, shown: Distribution, phase: Phase) -> Iterator[tuple[str, list[float]]]:
        now, split = _vector(shown), _at_edges(self.splits.get(key), shown.edges)
        if split is None or now[-2] < split.base[-2]:
            yield phase, now
            return
        since = [value - base for value, base in zip(now, split.base, strict=True)]
        for name in {**split.gained, phase: None}:
            before = split.gained.get(name, [0.0] * len(now))
            yield name, [b + s for b, s in zip(before, since, strict=True)] if name == phase else before


def _at_edges(split: Split | None, edges: tuple[float, ...]) -> Split | None:
    """The split at these edges, some of which a damaged page may lack; None if it has others."""
    if split is None or split.edges == edges:
        return split
    places = {edge: place for place, edge in enumerate(split.edges)}
    if not places.keys() >= set(edges):
        return None
    kept = [*(places[edge] for edge in edges), -2, -1]
    gained = {phase: [values[place] for place in kept] for phase, values in split.gained.items()}
    return Split(edges, gained, [split.base[place] for place in kept])


def _vector(shown: Distribution) -> list[float]:
    return [*shown.counts, shown.sum]
