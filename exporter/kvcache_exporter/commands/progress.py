"""A progress bar on standard error, only if that is a terminal."""

import sys
import time
from types import TracebackType
from typing import Self

_AFTER_SECONDS = 0.5
_EVERY_SECONDS = 0.1
_WIDTH = 30


class Progress:
    """Shows nothing in the first half second, so that quick work leaves no trace."""

    def __init__(self, name: str, unit: str = "MB", size: float = 1e6) -> None:
        """`unit` is shown in the rate; `size` is how many of `update`'s counts make one of it."""
        self._name = name
        self._unit = unit
        self._size = size
        self._started = time.monotonic()
        self._shown = 0.0

    def update(self, done: int, total: int) -> None:
        """A `total` of 0 means that it is unknown."""
        now = time.monotonic()
        if not sys.stderr.isatty() or now < max(self._started + _AFTER_SECONDS, self._shown + _EVERY_SECONDS):
            return
        self._shown = now
        share = min(1.0, done / total) if total else 0.0
        bar = "#" * int(share * _WIDTH)
        rate = done / (now - self._started) / self._size
        sys.stderr.write(f"\r{self._name} [{bar:{_WIDTH}}] {100 * share:3.0f} %  {rate:.0f} {self._unit}/s ")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
