"""Timing on a noisy machine: CPU seconds of this process, best of several runs."""

import gc
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table."""

    what: str
    ours: str
    reference: str
    ratio: float
    goal: str


def cpu_seconds(work: Callable[[], object], repeat: int = 5) -> float:
    """CPU seconds of the fastest of `repeat` runs."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best
