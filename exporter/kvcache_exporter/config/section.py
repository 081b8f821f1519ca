"""A mapping of the configuration as a dataclass: its keys, kinds and defaults are the annotations."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from kvcache_exporter.config import kinds

MIB = 1 << 20
Problems = Iterator[tuple[str, str]]
"""Pairs of a key ("" for the mapping itself) and what is wrong with it beside its kind."""
MOVE_TO_FILE = "found a secret in the configuration; write it to a file and name the file in {}"

Seconds = Annotated[float, kinds.duration(0.1, 86400.0)]


class Section:
    """A mapping of the configuration, read key by key from the annotations of its dataclass."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Keys that are known but cannot be used, with the reason."""

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:  # noqa: ARG003
        """Problems of which keys stand in the file, whatever their values."""
        yield from ()

    def problems(self) -> Problems:
        """Problems between values; only asked when each value is sound by itself."""
        yield from ()
