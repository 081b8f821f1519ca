"""Tells a restarted process from several processes that answer behind one address in turn.

A load balancer, or API servers that do not share their counters, shows one process's page, then another's:
counters jump back and forth. A page belongs to a process met before if no counter is below where that process
stood and its start time, where pages have one, is exactly the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kvcache_exporter.scrape.lifecycle import START_JITTER

_MOST_PROCESSES = 8
_LEAST_SERIES = 3
"""Fewer counters above zero say nothing about who they belong to."""


@dataclass(eq=False, slots=True)
class _Process:
    start: float | None
    values: Mapping[int, float]
    """Counters by column as it showed them last."""

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
    """The processes behind one target's address, by the counters each showed last."""

    def __init__(self) -> None:
        self._current: _Process | None = None
        self._left: list[_Process] = []
        self._generation = 0
        self._several = False
        """Whether a process came back that had been left."""

    def place(
        self, values: Mapping[int, float], start: float | None, generation: int
    ) -> Mapping[int, float] | None:
        """Where the page's process stood before, if it is another one than the last page's but not a new one.

        `values` are counters by column, `generation` changes when columns are numbered anew. A process that
        is met for the first time but older than the one before it stands where it is.
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
        """Whether what looks like growth may be a process that was left: the next pages tell."""
        return page.start is None and any(
            process.size > before.size and process.goes_on_as(page) for process in self._left
        )

    def _known(self, before: _Process, page: _Process, *, back: bool) -> _Process | None:
        """Of the processes that were left, the one this page goes on from."""
        switched = back or page.start != before.start
        # Without start times, going on from a process that was left looks like growth, until one did return.
        if not switched and (page.start is not None or not self._several):
            return None
        found = [process for process in self._left if process.goes_on_as(page)]
        nearest = max(found, key=lambda process: process.size, default=None)
        return nearest if switched or (nearest is not None and nearest.size > before.size) else None
