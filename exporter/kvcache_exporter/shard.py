"""Decides which of several exporters scrapes a target or reads a source, by its name."""

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

MAX_INDEX = 1023


@dataclass(frozen=True, slots=True)
class Shard:
    """Exporter number `index` of `count`; every name has exactly one owner among them."""

    index: int = 0
    count: int = 1

    def owns(self, name: str) -> bool:
        return owner(name, self.count) == self.index


@lru_cache(maxsize=1 << 18)
def owner(name: str, count: int) -> int:
    """The shard with the highest weight for this name (rendezvous hashing).

    Adding a shard moves one name in `count` to it, and no other. Weights are hashes of the name, keyed by the
    number of the shard, so they are the same in every process and version.
    """
    data = name.encode("utf-8", "surrogatepass")
    return max(range(count), key=lambda shard: blake2b(data, digest_size=8, key=b"shard %d" % shard).digest())


def parse_index(text: str) -> int:
    """The index in `2` or in the name of a StatefulSet's pod, `kvcache-exporter-2`; raises ValueError."""
    match = re.fullmatch(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?-)?(\d{1,4})", text, re.ASCII)
    if match is None or int(match[1]) > MAX_INDEX:
        raise ValueError(
            f'found "{text[:80]}", expected a number from 0 to {MAX_INDEX}, or the name of '
            "a StatefulSet's pod, which ends in one, such as kvcache-exporter-2"
        )
    return int(match[1])
