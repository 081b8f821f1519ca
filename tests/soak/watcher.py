"""Scrapes the exporter every second for the whole run and holds it to what counters are."""

import re
import threading
import time
from collections.abc import Callable

import requests
from processes import scrape

_ONLY_RISES = re.compile(r"kvcache_\w+_(total|count|sum|bucket)\{source=")


def total(page: dict[str, float], name: str, **labels: str) -> float:
    """The sum of a family's series that carry these labels."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        value
        for series, value in page.items()
        if series.partition("{")[0] == name and all(label in series for label in wanted)
    )


class Watcher(threading.Thread):
    """`check` sees every page and returns what is wrong with it; `resident` gives the process's bytes."""

    def __init__(
        self, port: int, check: Callable[[dict[str, float]], list[str]], resident: Callable[[], int]
    ) -> None:
        super().__init__(name="watcher", daemon=True)
        self.page: dict[str, float] = {}
        self.problems: list[str] = []
        self.scrapes = self.failed = 0
        self.slowest = 0.0
        self.memory: list[tuple[float, int]] = []
        """Monotonic time and resident bytes."""
        self.stopping = threading.Event()
        self._port, self._check, self._resident = port, check, resident
        self._highest: dict[str, float] = {}

    def run(self) -> None:
        while not self.stopping.wait(1.0):
            self.look()

    def look(self) -> None:
        started = time.monotonic()
        try:
            page = scrape(self._port)
            self.memory.append((started, self._resident()))
        except (requests.RequestException, OSError, AssertionError):
            # Down, paused or out of files: that is what the faults are for.
            self.failed += 1
            return
        self.scrapes += 1
        self.slowest = max(self.slowest, time.monotonic() - started)
        self.problems += [*self._fallen(page), *self._check(page)]
        self.page = page

    def counted(self, source: str) -> float:
        return self.page.get(f'kvcache_log_lines_total{{source="{source}"}}', 0.0)

    def _fallen(self, page: dict[str, float]) -> list[str]:
        found = []
        for series, value in page.items():
            if _ONLY_RISES.match(series):
                before = self._highest.get(series, 0.0)
                if value < before:
                    found.append(f"{series} fell from {before} to {value}")
                self._highest[series] = max(before, value)
        missing = [series for series in self._highest if series not in page]
        return [*found, *(f"{series} vanished" for series in missing)]

    def slope(self, since: float) -> float:
        """Resident bytes gained an hour, by least squares over what was seen since a monotonic time."""
        seen = [(at, float(size)) for at, size in self.memory if at >= since]
        if len(seen) < 10:
            return 0.0
        middle_at = sum(at for at, _ in seen) / len(seen)
        middle = sum(size for _, size in seen) / len(seen)
        spread = sum((at - middle_at) ** 2 for at, _ in seen)
        return 3600 * sum((at - middle_at) * (size - middle) for at, size in seen) / spread
