"""Caches what follows from an object's keys: the lines of a log nearly always have the same keys."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_REMEMBERED = 256
_MOST_KEYS, _LONGEST_KEYS = 64, 2000

Layout = TypeVar("Layout")


class Layouts(dict[tuple[str, ...], Layout], Generic[Layout]):
    """Layouts by keys, in their order; objects with very many or very long keys are not remembered."""

    def __init__(self, work_out: Callable[[Iterable[str]], Layout]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, keys: tuple[str, ...]) -> Layout:
        layout = self._work_out(keys)
        if len(keys) <= _MOST_KEYS and sum(map(len, keys)) <= _LONGEST_KEYS:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[keys] = layout
        return layout
