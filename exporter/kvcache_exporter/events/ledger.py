"""Counters of one engine rank: events, blocks stored and evicted by tier, and its block index."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from kvcache_exporter import catalogue as c
from kvcache_exporter.events.blocks import DEVICE, BlockIndex
from kvcache_exporter.events.wire import Batch, BatchDecoder, Event, Hash
from kvcache_exporter.model import Sample

_TIERS = {"gpu": DEVICE, "npu": DEVICE, "cpu": "host", "dram": "host", "disk": "disk", "ssd": "disk"}
_MEDIUM_LENGTH = 16


class RankLedger:
    """For one thread. Payloads are decoded here, and only counts and hashes of blocks are kept."""

    def __init__(self, limit: int) -> None:
        self.events: Counter[str] = Counter()
        self.lost = 0
        self.stored: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()
        self.index = BlockIndex(limit)
        self.started = False
        """Whether a batch has been read; before that, nothing is known about the cache."""
        self._decoder = BatchDecoder()

    def add(self, payload: bytes) -> bool:
        """Count a batch and follow its blocks; False if it cannot be read at all."""
        batch = self._decoder.decode(payload)
        if batch is None:
            self.reject()
            return False
        if batch.unreadable:
            self.events["unreadable"] += batch.unreadable
        self._apply(batch, self.events, self.stored, self.removed)
        return True

    def learn(self, payload: bytes) -> None:
        """Follow the blocks of a batch from before this ledger began, without counting it."""
        batch = self._decoder.decode(payload)
        if batch is not None:
            self.index.counting = False
            self._apply(batch, Counter(), Counter(), Counter())
            self.index.counting = True

    def reject(self) -> None:
        self.events["unreadable"] += 1

    def forget(self) -> None:
        self.index.forget()

    def samples(self, labels: tuple[str, str, str, str]) -> Iterator[Sample]:
        """Samples per rank, where `labels` holds the values of ENG; the source adds those per target."""
        for tier in {DEVICE, *self.stored, *self.removed}:
            yield Sample(c.STORED_BLOCKS, (*labels, tier), float(self.stored[tier]))
            yield Sample(c.EVICTED_BLOCKS, (*labels, tier), float(self.removed[tier]))
        yield Sample(c.REWARMED_BLOCKS, labels, float(self.index.rewarmed))
        yield Sample(c.REWARM_DELAY, labels, self.index.delays())
        yield Sample(c.TRACKED_BLOCKS, (*labels, "resident"), self.index.resident_share)
        yield Sample(c.TRACKED_BLOCKS, (*labels, "removed"), self.index.removed_share)
        if self.started:
            for tier, blocks in ({DEVICE: 0} | self.index.resident()).items():
                yield Sample(c.RESIDENT_BLOCKS, (*labels, tier), float(blocks))

    def _apply(self, batch: Batch, events: Counter[str], stored: Counter[str], removed: Counter[str]) -> None:
        self.started = True
        for event, count, hashes in runs(batch.events):
            tier, group = tier_of(event.medium), event.group_idx or 0
            events[event.kind] += count
            if event.kind == "stored":
                stored[tier] += len(hashes)
                self.index.store(hashes, tier, batch.time, group)
            elif event.kind == "removed":
                removed[tier] += len(hashes)
                self.index.remove(hashes, tier, batch.time, group)
            else:
                self.index.forget()


def runs(events: Sequence[Event]) -> Iterator[tuple[Event, int, list[Hash]]]:
    """Merges neighbouring events of the same kind, medium and group: the first, their number, all hashes.

    vLLM sends one event per removed block; handling many in one step makes this fast.
    """
    if not events:
        return
    first, kind, medium, group = events[0], type(events[0]), events[0].medium, events[0].group_idx
    count, hashes = 0, list[Hash]()
    for event in events:
        if type(event) is not kind or event.medium != medium or event.group_idx != group:
            yield first, count, hashes
            first, kind, medium, group = event, type(event), event.medium, event.group_idx
            count, hashes = 0, []
        count += 1
        hashes += event.block_hashes
    yield first, count, hashes


def tier_of(medium: str | None) -> str:
    """The tier of a medium; an unknown medium counts as remote."""
    return _tier(medium[:_MEDIUM_LENGTH]) if medium else DEVICE


@lru_cache(maxsize=64)
def _tier(medium: str) -> str:
    word = medium.lower()
    return next((tier for start, tier in _TIERS.items() if word.startswith(start)), "remote")
