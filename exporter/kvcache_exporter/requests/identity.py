"""Recognises a log file again by its content, since names and inodes are reused."""

import os
import re
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec

HEAD_BYTES = 1024
TAIL_BYTES = 256
TELLING_BYTES = 64

FileId = tuple[int, int]
"""Device and inode."""
NOWHERE: FileId = (0, 0)


class Print(NamedTuple):
    """Fingerprint of a range of bytes; never the bytes themselves, which may contain prompt text."""

    size: Annotated[int, msgspec.Meta(ge=0, le=HEAD_BYTES)] = 0
    digest: str = ""

    @classmethod
    def of(cls, data: bytes) -> "Print":
        return cls(len(data), blake2b(data, digest_size=16).hexdigest()) if data else cls()

    def matches(self, data: bytes) -> bool:
        """Whether `data` begins with the fingerprinted bytes."""
        return len(data) >= self.size and Print.of(data[: self.size]) == self


NO_PRINT = Print()
_BOUNDARIES = ("", *"-_+~@")


def related(one: str, other: str) -> bool:
    """Whether rotation may have named one of these files after the other.

    `a.log` is related to `a.log.1`, `a.log.1.gz` and `a-20251129.log`. Files with the same content and
    unrelated names are two logs.
    """
    folder, name = _folder_and_stem(one)
    other_folder, other_name = _folder_and_stem(other)
    short, long = sorted((name, other_name), key=len)
    return folder == other_folder and long.startswith(short) and long[len(short) :][:1] in _BOUNDARIES


def family(path: str) -> tuple[str, str]:
    """A key that related files share."""
    folder, stem = _folder_and_stem(path)
    return folder, re.split(r"[-_+~@]", stem, maxsplit=1)[0]


@lru_cache(maxsize=16384)
def _folder_and_stem(path: str) -> tuple[str, str]:
    folder, name = os.path.split(path)
    return folder, name[:1] + name[1:].split(".", 1)[0]
