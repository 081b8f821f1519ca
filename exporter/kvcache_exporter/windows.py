"""Increases of counters over windows: aware of resets, series by series, and exact between two pages.

Every watched series has a column that never falls: after a reset, what the series has counted since is added.
One row of all columns is kept per page, and an increase is the difference of two rows. Nothing is
extrapolated.
"""

from array import array
from collections import deque
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

_FORGET_AFTER = 64
MAX_COLUMNS = 100_000
"""Beyond it only the series of the newest page are remembered: twice what one page may have."""
MAX_CELLS = 2_000_000
"""Rows times columns; where there are many columns, rows are kept further apart."""
_FEWEST_ROWS = 20


Row = tuple[float, "array[float]"]
"""Time and values."""


class Terms(NamedTuple):
    """The sum of `plus` less the sum of `minus`: indices into a page's values, or columns of a History."""

    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()


class History:
    """The watched counters of one source over the longest window.

    `resolution` bounds memory: a window holds about that many rows, older ones are thinned.
    """

    def __init__(self, longest: float, resolution: int = 240) -> None:
        self._longest = longest
        self._spacing = longest / resolution
        self._columns: dict[Hashable, int] = {}
        self._last: list[float] = []
        self._seen: list[float] = []
        self._total: array[float] = array("d")
        self._rows: deque[Row] = deque()
        self._behind = 0.0
        """Seconds by which the clock has gone back since the first page."""
        self.generation = 0
        """Changes when columns are numbered anew."""

    def column(self, series: Hashable) -> int:
        """The column of a series; made on first use."""
        column = self._columns.get(series)
        if column is None:
            column = self._columns[series] = len(self._last)
            # A series that appears on a source already known was born at zero since the last page.
            self._last.append(0.0 if self._rows else -1.0)
            self._seen.append(0.0)
            self._total.append(0.0)
        return column

    def rebase(self, values: Mapping[int, float]) -> None:
        """Count on from these raw values by column: the next page does not go on from the last one."""
        for column, value in values.items():
            self._last[column] = value

    def gone_back(self, values: Mapping[int, float]) -> frozenset[int]:
        """Columns whose raw value is below the last one."""
        return frozenset(column for column, value in values.items() if value < self._last[column])

    def restart(self, but: Container[int] = ()) -> bool:
        """All columns but these begin at zero before the next page; whether any had counted anything."""
        counted = [column for column, last in enumerate(self._last) if last > 0.0 and column not in but]
        for column in counted:
            self._last[column] = 0.0
        return bool(counted)

    def add(self, now: float, values: Iterable[tuple[int, float]]) -> None:
        """Take in one page as pairs of column and raw value."""
        now = self._moment(now)
        last, total, seen = self._last, self._total, self._seen
        for column, value in values:
            before = last[column]
            if value >= before:
                if before >= 0.0:
                    total[column] += value - before
            else:
                total[column] += value
            last[column] = value
            seen[column] = now
        self._append(now)

    def _moment(self, now: float) -> float:
        """`now` as if the clock never went back, since no window ends before it begins."""
        if self._rows:
            self._behind = max(self._behind, self._rows[-1][0] - now)
        return now + self._behind

    def _append(self, now: float) -> None:
        rows = self._rows
        rows.append((now, self._total[:]))
        while len(rows) > 2 and rows[1][0] <= now - self._longest:
            rows.popleft()
        room = max(_FEWEST_ROWS, MAX_CELLS // max(1, len(self._last)))
        if len(rows) > min(room, 2 * (self._longest / self._spacing)):
            self._thin(max(self._spacing, 2 * self._longest / room))
        if len(self._last) > MAX_COLUMNS:
            self._forget(now, now)
        elif (
            len(self._last) > _FORGET_AFTER
            and sum(s < now - self._longest for s in self._seen) > len(self._last) / 2
        ):
            self._forget(now, now - self._longest)

    def _thin(self, spacing: float) -> None:
        self._rows = deque(thinned(list(self._rows), spacing))

    def _forget(self, now: float, since: float) -> None:
        """Drop the columns of series that no page has had `since` then."""
        self.generation += 1
        alive = [column for column, seen in enumerate(self._seen) if since <= seen <= now]
        renumbered = {old: new for new, old in enumerate(alive)}
        self._columns = {s: renumbered[c] for s, c in self._columns.items() if c in renumbered}
        self._last = [self._last[column] for column in alive]
        self._seen = [self._seen[column] for column in alive]
        self._total = array("d", [self._total[column] for column in alive])
        self._rows = deque(
            (at, array("d", [row[c] if c < len(row) else 0.0 for c in alive])) for at, row in self._rows
        )

    def span(self, window: float) -> "Span | None":
        """The newest page against the last page at least `window` seconds older, else the oldest one.

        None before the second page, and after a gap: a window never stands for more than twice its length.
        """
        if len(self._rows) < 2:
            return None
        now, newest = self._rows[-1]
        base = next((row for row in reversed(self._rows) if row[0] <= now - window), self._rows[0])
        seconds = now - base[0]
        return Span(seconds, base[1], newest) if 0 < seconds <= 2 * window else None

    @property
    def time_of_last(self) -> float | None:
        """When the newest page was taken."""
        return self._rows[-1][0] if self._rows else None

    @property
    def time_before_last(self) -> float | None:
        """When the page before the newest one was taken."""
        return self._rows[-2][0] if len(self._rows) > 1 else None

    def span_since(self, window: float, since: float | None) -> "Span | None":
        """As `span`, but not reaching back beyond `since`, whatever the gap after it."""
        if len(self._rows) < 2:
            return None
        now, newest = self._rows[-1]
        start = now - window if since is None else max(now - window, since)
        base = next((row for row in reversed(self._rows) if row[0] <= start), self._rows[0])
        return Span(now - base[0], base[1], newest) if base[1] is not newest else None

    def last_step(self) -> "Span | None":
        """The newest page against the one before it."""
        if len(self._rows) < 2:
            return None
        (before, old), (now, new) = self._rows[-2], self._rows[-1]
        return Span(now - before, old, new)


def thinned(rows: Sequence[Row], spacing: float) -> list[Row]:
    """Without rows closer than the spacing (seconds), the newest fifth excepted, which short windows read."""
    keep = len(rows) // 5
    kept = list(rows[:1])
    for row in rows[1:-keep]:
        if row[0] - kept[-1][0] >= spacing:
            kept.append(row)
    return [*kept, *rows[-keep:]]


class Span:
    """Increases between two pages, `seconds` apart; terms hold columns."""

    def __init__(self, seconds: float, old: "array[float]", new: "array[float]") -> None:
        self.seconds = seconds
        self._old = old
        self._new = new

    def increase(self, terms: Terms) -> float:
        total = sum(map(self._of, terms.plus))
        return total - sum(map(self._of, terms.minus)) if terms.minus else total

    def _of(self, column: int) -> float:
        # A row is shorter than the columns made after it; they all began at zero.
        new = self._new[column] if column < len(self._new) else 0.0
        return new - self._old[column] if column < len(self._old) else new
