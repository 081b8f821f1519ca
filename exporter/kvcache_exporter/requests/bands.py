"""Bands of prompt length as part of the group: the cost of a miss depends on the prompt's length."""

from bisect import bisect_left
from collections.abc import Sequence

from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.formats.base import Entry


class Bands:
    """Names the bands between `edges` (in tokens); without edges, groups stay as they are."""

    def __init__(self, edges: Sequence[int]) -> None:
        self._edges = tuple(edges)
        lows = (0, *(edge + 1 for edge in self._edges))
        named = (f"{low}-{high}" for low, high in zip(lows, self._edges, strict=False))
        self._names = [*named, f"{lows[-1]}+"]

    def __bool__(self) -> bool:
        return bool(self._edges)

    def apply(self, entries: list[Entry]) -> list[Entry]:
        """The entries, with the band appended to the group of each record whose prompt is known."""
        return [self._banded(entry) for entry in entries] if self._edges else entries

    def _banded(self, entry: Entry) -> Entry:
        if not isinstance(entry, RequestRecord) or entry.prompt_tokens is None:
            return entry
        name = self._names[bisect_left(self._edges, entry.prompt_tokens)]
        return entry._replace(group=f"{entry.group} {name}".lstrip())
