"""A mapping of the configuration as a dataclass whose annotations give keys, kinds and defaults."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from kvcache_exporter.config import kinds

MIB = 1 << 20
Problems = Iterator[tuple[str, str]]
"""Pairs of a key ("" for the mapping itself) and what is wrong with its value."""
MOVE_TO_FILE = "found a secret in the configuration; write it to a file and name the file in {}"

Seconds = Annotated[float, kinds.duration(0.1, 86400.0)]


def certificate_conflicts(given: frozenset[str]) -> Problems:
    """For sections with the keys cert_file and key_file."""
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if one in given and other not in given:
            yield one, f"a client certificate needs both files; add {other}"


def choice_conflicts(given: frozenset[str], keys: tuple[str, ...]) -> Problems:
    """For sections that need exactly one of these keys."""
    found = [key for key in keys if key in given]
    if len(found) != 1:
        shown = " and ".join(found) or "none of them"
        yield "", f"found {shown}, expected exactly one of {', '.join(keys)}"


class Section:
    """Base of the dataclasses that describe a mapping of the configuration."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Keys that are known but not accepted, with the reason."""

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:  # noqa: ARG003
        """Problems with the combination of keys, whatever their values."""
        yield from ()

    def problems(self) -> Problems:
        """Problems between values; called only if every value is valid by itself."""
        yield from ()
