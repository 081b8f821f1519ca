"""An index of the blocks that a cache holds and has lost, by hash, in bounded memory.

Up to `limit` entries everything is exact. Beyond that, only a sample of hashes is followed: one in 2, 4, 8
and so on. Removed hashes are thinned first, since they only grow in number, and resident ones only if they
alone fill the limit. Estimates multiply each followed block by the hashes it stands for.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import cast

from kvcache_exporter.events.wire import Hash
from kvcache_exporter.model import Distribution

DEVICE = "device"
DELAY_EDGES = (
    0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0,
)  # fmt: skip

_INTEGERS = {int}
_SPREAD = 0x9E3779B97F4A7C15
_OFFSET = 0x632BE59BD9B4E019
"""Without it, 0 and -1 would be in every sample, and many of them could not be thinned."""
_BITS = 2**64 - 1
_SPARSEST = 64
"""The thinnest sample is one removed hash in this many; after that, the oldest are forgotten instead."""


class Tier:
    """The live hashes of one tier."""

    def __init__(self) -> None:
        self.live: set[int] = set()
        self.again: dict[int, int] = {}
        """How often a live hash was stored again; engines do that to a few."""

    def __len__(self) -> int:
        return len(self.live) + len(self.again)

    def store(self, keys: Sequence[int]) -> Iterable[int]:
        """Store hashes; returns those that were not live before."""
        fresh = set(keys) - self.live
        if len(fresh) < len(keys):
            for key, count in Counter(keys).items():
                if more := count - (key in fresh):
                    self.again[key] = self.again.get(key, 0) + more
        self.live |= fresh
        return fresh

    def remove(self, keys: Sequence[int]) -> Sequence[int]:
        """Remove hashes; returns those that are no longer live, also if their storing was not seen."""
        if self.again and not self.again.keys().isdisjoint(keys):
            keys = [key for key in keys if not self._release(key)]
        self.live.difference_update(keys)
        return keys

    def thin(self, one_in: int) -> None:
        """Keep only hashes of the sample; in place, as a copy would need memory when it is scarcest."""
        self.live.difference_update([key for key in self.live if not sampled(key, one_in)])
        for key in self.again.keys() - self.live:
            del self.again[key]

    def _release(self, key: int) -> bool:
        """Whether the hash stays live, as it was stored more often than removed."""
        count = self.again.get(key, 0)
        if count > 1:
            self.again[key] = count - 1
        elif count:
            del self.again[key]
        return count > 0


class BlockIndex:
    """Follows the blocks of one engine rank in at most `limit` entries (at least 4)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tiers: dict[str, Tier] = {}
        self._gone: dict[int, float] = {}
        """Removal times of hashes that are no longer on the device, roughly oldest first."""
        self._one_in = 1
        self._gone_one_in = 1
        self.counting = True
        """Whether blocks stored again are counted; not while old batches are replayed."""
        self.rewarmed = 0
        self._delays = [0] * (len(DELAY_EDGES) + 1)
        self._delay_sum = 0.0

    def store(self, hashes: Sequence[Hash], tier: str, moment: float, group: int = 0) -> None:
        """`moment` is in Unix seconds; equal hashes of different `group`s are different blocks."""
        fresh = self._tier(tier).store(self._keys(hashes, group))
        if tier == DEVICE:
            gone = self._gone
            delays = [max(moment - gone.pop(key), 0.0) for key in gone.keys() & fresh]
            if delays and self.counting:
                self._rewarm(delays)
        self._fit()

    def remove(self, hashes: Sequence[Hash], tier: str, moment: float, group: int = 0) -> None:
        removed = self._tier(tier).remove(self._keys(hashes, group))
        if tier == DEVICE:
            if self._gone_one_in > 1:
                removed = [key for key in removed if sampled(key, self._gone_one_in)]
            self._gone.update(dict.fromkeys(removed, moment))
        self._fit()

    def forget(self) -> None:
        """The cache was cleared or replaced: nothing is resident, and nothing can be re-warmed."""
        self._tiers.clear()
        self._gone.clear()
        self._one_in = self._gone_one_in = 1

    @property
    def entries(self) -> int:
        return sum(map(len, self._tiers.values())) + len(self._gone)

    def resident(self) -> dict[str, int]:
        """Blocks by tier, each hash once; an estimate if `resident_share` is below 1."""
        return {name: len(tier.live) * self._one_in for name, tier in self._tiers.items()}

    @property
    def resident_share(self) -> float:
        return 1 / self._one_in

    @property
    def removed_share(self) -> float:
        return 1 / self._gone_one_in

    def delays(self) -> Distribution:
        counts, total = [], 0
        for count in self._delays:
            total += count
            counts.append(float(total))
        return Distribution(DELAY_EDGES, tuple(counts), self._delay_sum)

    def _tier(self, name: str) -> Tier:
        tier = self._tiers.get(name)
        if tier is None:
            tier = self._tiers[name] = Tier()
        return tier

    def _keys(self, hashes: Sequence[Hash], group: int) -> Sequence[int]:
        """Hashes as 64-bit integers, so that the size of an entry does not depend on the engine."""
        keys = cast("Sequence[int]", hashes)
        if not _INTEGERS.issuperset(map(type, hashes)):
            keys = [key if type(key) is int else hash(key) for key in hashes]
        if group:
            salt = group * _SPREAD & _BITS
            keys = [key ^ salt for key in keys]
        return keys if self._one_in == 1 else [key for key in keys if sampled(key, self._one_in)]

    def _rewarm(self, delays: list[float]) -> None:
        weight = self._gone_one_in
        self.rewarmed += len(delays) * weight
        self._delay_sum += sum(delays) * weight
        for delay in delays:
            self._delays[bisect_left(DELAY_EDGES, delay)] += weight

    def _fit(self) -> None:
        while self.entries > self._limit:
            if len(self._gone) * 4 > self._limit:
                self._thin_gone()
            else:
                self._thin_live()

    def _thin_gone(self) -> None:
        if self._gone_one_in < max(_SPARSEST, self._one_in):
            self._gone_one_in *= 2
            dropped = [key for key in self._gone if not sampled(key, self._gone_one_in)]
        else:
            dropped = list(islice(self._gone, len(self._gone) // 2 + 1))
        for key in dropped:
            del self._gone[key]

    def _thin_live(self) -> None:
        """Thin removed hashes with them, as it is unknown whether hashes outside the sample are live."""
        self._one_in *= 2
        for tier in self._tiers.values():
            tier.thin(self._one_in)
        if self._gone_one_in < self._one_in:
            self._thin_gone()


def sampled(key: int, one_in: int) -> bool:
    """Whether a hash belongs to the sample of one in `one_in`, a power of 2."""
    return not (((key ^ key >> 29) + _OFFSET) * _SPREAD >> 40) & (one_in - 1)
