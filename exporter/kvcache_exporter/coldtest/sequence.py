"""Runs the phases of a test: warm-up, warm run, restart, cold run."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kvcache_exporter.coldtest.drive import Driver, Pace, Run
from kvcache_exporter.coldtest.endpoint import Endpoint, advice
from kvcache_exporter.coldtest.load import Load
from kvcache_exporter.errors import KVCacheError

WARM_UP, WARM, COLD = "warm-up", "warm", "cold"


class Watcher(Protocol):
    """Shows the progress of a phase."""

    def update(self, done: int, total: int) -> None: ...


class Loads(NamedTuple):
    """The load of each phase; the warm and the cold run send the same one."""

    warm_up: Load
    measure: Load

    def of(self, phase: str) -> Load:
        return self.warm_up if phase == WARM_UP else self.measure


@dataclass(slots=True)
class Sequence:
    """Runs the phases and keeps their results, also if an interrupt ends it early."""

    endpoint: Endpoint
    pace: Pace
    loads: Loads
    restart: Callable[[], None]
    """Returns when the engine serves again."""
    watch: Callable[[str], AbstractContextManager[Watcher]]
    runs: dict[str, Run] = field(default_factory=dict)
    restart_seconds: float | None = None
    interrupted: bool = False
    failure: str = ""
    """Why the planned cold run did not take place; earlier measurements are kept."""

    def run(self, phases: tuple[str, ...]) -> None:
        """Raises KVCacheError if the engine answers no request of the warm-up."""
        try:
            for phase in phases:
                if phase == COLD and WARM in phases:
                    self._restart()
                if self.failure:
                    return
                self._drive(phase)
                if self.interrupted:
                    return
        except KeyboardInterrupt:
            self.interrupted = True

    def _drive(self, phase: str) -> None:
        with self.watch(phase) as watcher:
            run = Driver(self.endpoint, self.pace, self.loads.of(phase)).drive(watcher.update)
        self.runs[phase] = run
        self.interrupted = run.interrupted
        if phase == WARM_UP and not any(answer.reply for answer in run.answers) and not run.interrupted:
            reasons = Counter(answer.error for answer in run.answers)
            ((reason, count),) = reasons.most_common(1) or [("no request was sent in time", 0)]
            raise KVCacheError(
                f"{self.endpoint.url}: none was answered ({count} x {reason}): {advice(reason)}"
            )

    def _restart(self) -> None:
        begun = time.monotonic()
        try:
            self.restart()
        except KVCacheError as error:
            self.failure = str(error)
        self.restart_seconds = time.monotonic() - begun
