"""The last hour of a few values, in bounded memory."""

from array import array
from collections.abc import Sequence
from math import isnan, nan

from kvcache_exporter.windows import Row, thinned

LONGEST = 3600.0
RESOLUTION = 240
"""Minimum of points kept for an hour, one every 15 seconds; never more than twice as many."""
_DIGITS = 5


class Trail:
    """Rows of `width` values of 8 bytes each."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: list[Row] = []

    def add(self, now: float, values: Sequence[float | None]) -> None:
        """`now` in Unix seconds."""
        self._rows.append((now, array("d", [nan if value is None else value for value in values])))
        first = next(i for i, (at, _) in enumerate(self._rows) if at > now - LONGEST)
        del self._rows[:first]
        if len(self._rows) > 2 * RESOLUTION:
            self._rows = thinned(self._rows, LONGEST / RESOLUTION)

    def until(self, now: float, values: Sequence[float | None]) -> "Trail":
        """The same with the present as its last row."""
        shown = Trail(self._width)
        shown._rows = [row for row in self._rows if row[0] < now]
        shown.add(now, values)
        return shown

    @property
    def at(self) -> list[float]:
        return [round(at, 1) for at, _ in self._rows]

    def columns(self) -> list[list[float | None]]:
        """Values rounded to five digits, None where there was none."""
        return [[_short(row[place]) for _, row in self._rows] for place in range(self._width)]


def _short(value: float) -> float | None:
    return None if isnan(value) else float(f"{value:.{_DIGITS}g}")
