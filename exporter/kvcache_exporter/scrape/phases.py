"""Splits a histogram by what the target was when each bucket grew: cold or warm.

Both parts are counters of the engine's own life: they reset with it, and their sum is what the engine shows.
"""

from collections.abc import Iterator

import msgspec

from kvcache_exporter.model import Distribution
from kvcache_exporter.scrape.lifecycle import Phase


class Split(msgspec.Struct):
    """What each phase had gained when the phase changed last, and what the engine showed then."""

    edges: tuple[float, ...]
    gained: dict[str, list[float]]
    """Counts and, last, the sum, by phase."""
    base: list[float]


class PhaseSplitter:
    """The histograms of one target, by any key that `msgspec` can write."""

    def __init__(self, splits: dict[str, Split] | None = None) -> None:
        self.splits = splits or {}

    def restart(self) -> None:
        """The engine's counters began anew."""
        self.splits.clear()

    def turn(self, key: str, shown: Distribution, phase: Phase) -> None:
        """From here on what the histogram gains belongs to another phase; `phase` is the one that ends."""
        self.splits[key] = Split(shown.edges, dict(self._parts(key, shown, phase)), _vector(shown))

    def split(self, key: str, shown: Distribution, phase: Phase) -> Iterator[tuple[str, Distribution]]:
        """The parts of what the engine shows now; a phase that never gained anything is left out."""
        for name, values in self._parts(key, shown, phase):
            if values[-2] > 0:
                yield name, Distribution(shown.edges, tuple(values[:-1]), values[-1])

    def _parts(self, key: str, shown: Distribution, phase: Phase) -> Iterator[tuple[str, list[float]]]:
        now, split = _vector(shown), self.splits.get(key)
        if split is None or split.edges != shown.edges or now[-2] < split.base[-2]:
            yield phase, now
            return
        since = [value - base for value, base in zip(now, split.base, strict=True)]
        for name in {**split.gained, phase: None}:
            before = split.gained.get(name, [0.0] * len(now))
            yield name, [b + s for b, s in zip(before, since, strict=True)] if name == phase else before


def _vector(shown: Distribution) -> list[float]:
    return [*shown.counts, shown.sum]
