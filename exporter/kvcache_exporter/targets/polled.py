"""Discovery by repeated look-ups, in a thread so that a slow one delays nothing else."""

import threading
import time
from abc import abstractmethod
from collections.abc import Sequence

from kvcache_exporter.config import TargetGroup
from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.targets.base import Discovery, DiscoveryError, Target

GRACE_SECONDS = 0.2
"""Seconds that `settle` waits for a look-up, so that targets of a quick one are there at once."""


class PolledDiscovery(Discovery):
    """Keeps the last known targets while look-ups fail; runs one look-up at a time."""

    def __init__(self, group: TargetGroup, where: str, interval: float, timeout: float = 5.0) -> None:
        super().__init__(group)
        self._where = where
        self._interval = interval
        self._timeout = timeout
        self._targets: Sequence[Target] = ()
        self._next_look = float("-inf")
        self._thread: threading.Thread | None = None
        self._settles_at: float | None = None
        """Monotonic time until which `settle` waits for a running look-up."""
        self._late_at = 0.0
        self._is_late = False

    @abstractmethod
    def look(self) -> Sequence[Target]:
        """All current targets; raises DiscoveryError."""

    def targets(self) -> Sequence[Target]:
        return self._targets

    def begin(self, now: float) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._complain_once(now)
            return
        if now < self._next_look:
            return
        self._next_look = now + self._interval
        self._late_at = now + self._timeout
        self._thread = threading.Thread(target=self._run, name=f"discovery {self._where}", daemon=True)
        self._thread.start()
        self._settles_at = time.monotonic() + (0.0 if self._is_late else GRACE_SECONDS)

    def settle(self) -> None:
        if self._thread is None or self._settles_at is None:
            return
        self._thread.join(max(0.0, self._settles_at - time.monotonic()))
        self._is_late, self._settles_at = self._thread.is_alive(), None

    def expire(self) -> None:
        self._next_look = float("-inf")

    def report(self, reason: str, message: str) -> None:
        self.failed(reason, message, self.last_error)
        self.last_error = message

    def _complain_once(self, now: float) -> None:
        if now >= self._late_at:
            self._late_at = now + self._interval
            self.report("timeout", f"no answer within {self._timeout:g}s")

    def _run(self) -> None:
        failures = self.failures.total()
        try:
            self._targets = tuple(self.look())
        except DiscoveryError as error:
            self.report(error.reason, str(error))
        except (KVCacheError, OSError, ValueError) as error:
            self.report("internal", f"{type(error).__name__}: {error}")
        if self.failures.total() == failures:
            self.last_error = ""
