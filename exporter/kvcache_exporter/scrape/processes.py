"""Distinguishes a restarted process from several processes that answer in turn at one address.

Behind a load balancer, or with API servers that do not share counters, pages of different processes alternate
and counters jump back and forth. A page belongs to a known process if no counter is below that process's last
value and the start time, if pages have one, is exactly the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kvcache_exporter.scrape.lifecycle import START_JITTER

_MOST_PROCESSES = 8
_LEAST_SERIES = 3
"""With fewer counters above zero a page cannot be attributed to a process."""


@dataclass(eq=False, slots=True)
class _Process:
    start: float | None
    values: Mapping[int, float]
    """The last values of its counters, by column."""

    @property
    def size(self) -> float:
        return sum(self.values.values())

    def is_older_than(self, other: "_Process") -> bool:
        if self.start is None or other.start is None:
            return False
        return self.start < other.start - START_JITTER

    def goes_on_as(self, page: "_Process") -> bool:
        if page.start != self.start:
            return False
        pairs = [(value, page.values[col]) for col, value in self.values.items() if col in page.values]
        return sum(value > 0 for value, _ in pairs) >= _LEAST_SERIES and all(v <= new for v, new in pairs)


class Processes:
    """The processes behind one target's address, with the last counters of each."""

    def __init__(self) -> None:
        self._current: _Process | None = None
        self._left: list[_Process] = []
        self._generation = 0
        self._several = False
        """Whether an earlier process has answered again."""

    def place(
        self, values: Mapping[int, float], start: float | None, generation: int
    ) -> Mapping[int, float] | None:
        """The previous counters of the page's process, if it is not the last page's process but a known one.

        `values` are counters by column, `generation` changes when columns are renumbered. A process seen for
        the first time that is older than the last one starts from its current values.
        """
        if generation != self._generation:
            self._current, self._left, self._generation = None, [], generation
        before, page = self._current, _Process(start, values)
        self._current = page
        if before is None:
            return None
        back = any(value < before.values.get(column, value) for column, value in values.items())
        known = self._known(before, page, back=back)
        if known is not None:
            self._left.remove(known)
            self._several = True
        elif page.is_older_than(before):
            known = page
        if back or known is not None or self._may_go_on(before, page):
            self._left = [*self._left, before][-_MOST_PROCESSES:]
        return known.values if known is not None else None

    def _may_go_on(self, before: _Process, page: _Process) -> bool:
        """Whether apparent growth may be an earlier process; the next pages decide."""
        return page.start is None and any(
            process.size > before.size and process.goes_on_as(page) for process in self._left
        )

    def _known(self, before: _Process, page: _Process, *, back: bool) -> _Process | None:
        """The earlier process that this page continues."""
        switched = back or page.start != before.start
        # Without start times, an earlier process looks like growth, until one has once returned.
        if not switched and (page.start is not None or not self._several):
            return None
        found = [process for process in self._left if process.goes_on_as(page)]
        nearest = max(found, key=lambda process: process.size, default=None)
        return nearest if switched or (nearest is not None and nearest.size > before.size) else None
