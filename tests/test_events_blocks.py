"""The block index against a naive model, exact up to its limit and a fair estimate beyond it."""

import random
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvcache_exporter.events.blocks import DELAY_EDGES, BlockIndex

HASHES = st.lists(st.integers(-3, 8) | st.sampled_from([b"a", b"b", 2**64 - 1]), max_size=6)
TIERS = st.sampled_from(["device", "host"])


class AgainstANaiveModel(RuleBasedStateMachine):
    """A dict of counts and a dict of removals, with no limit, say the same after any events."""

    @initialize()
    def start(self) -> None:
        self.index = BlockIndex(1_000)
        self.live: Counter[tuple[str, int, int | bytes]] = Counter()
        self.gone: dict[tuple[int, int | bytes], float] = {}
        self.delays: list[float] = []
        self.now = 0.0

    @rule(hashes=HASHES, tier=TIERS, group=st.integers(0, 1), seconds=st.integers(0, 400))
    def store(self, hashes: list[int | bytes], tier: str, group: int, seconds: int) -> None:
        self.now += seconds
        self.index.store(hashes, tier, self.now, group)
        for key in hashes:
            self.live[tier, group, key] += 1
            if tier == "device" and (group, key) in self.gone:
                self.delays.append(self.now - self.gone.pop((group, key)))

    @rule(hashes=HASHES, tier=TIERS, group=st.integers(0, 1), seconds=st.integers(0, 400))
    def remove(self, hashes: list[int | bytes], tier: str, group: int, seconds: int) -> None:
        self.now += seconds
        self.index.remove(hashes, tier, self.now, group)
        for key in hashes:
            self.live[tier, group, key] -= 1
            if self.live[tier, group, key] <= 0:
                del self.live[tier, group, key]
                if tier == "device":
                    self.gone[group, key] = self.now

    @rule()
    def forget(self) -> None:
        self.index.forget()
        self.live.clear()
        self.gone.clear()

    @invariant()
    def says_the_same(self) -> None:
        resident = Counter(tier for tier, _, _ in self.live)
        assert Counter(self.index.resident()) == resident
        assert self.index.rewarmed == len(self.delays)
        found = self.index.delays()
        assert found.sum == sum(self.delays)
        assert found.counts == tuple(
            float(sum(delay <= edge for delay in self.delays)) for edge in (*DELAY_EDGES, float("inf"))
        )
        assert (self.index.resident_share, self.index.removed_share) == (1.0, 1.0)


AgainstANaiveModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAgainstANaiveModel = AgainstANaiveModel.TestCase


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(4, 50),
    steps=st.lists(
        st.tuples(st.booleans(), TIERS, st.lists(st.integers() | st.integers(-2, 1), max_size=40)),
        max_size=20,
    ),
)
def test_there_are_never_more_entries_than_the_limit(
    limit: int, steps: list[tuple[bool, str, list[int]]]
) -> None:
    index = BlockIndex(limit)
    for moment, (store, tier, hashes) in enumerate(steps):
        (index.store if store else index.remove)(hashes, tier, float(moment))
        assert index.entries <= limit


@pytest.mark.parametrize("key", [0, -1, 1, 2**64 - 1])
def test_no_hash_is_in_every_sample_and_keeps_the_memory_full(key: int) -> None:
    index = BlockIndex(4)
    for tier in ("device", "host", "disk", "remote"):
        index.store([key, key], tier, 0.0)
    assert index.entries <= 4


def test_a_full_memory_of_removed_blocks_leaves_what_is_resident_exact() -> None:
    chance = random.Random(1)
    index = BlockIndex(10_000)
    for moment in range(200):
        passing = [chance.getrandbits(64) for _ in range(500)]
        index.store(passing, "device", float(moment))
        index.remove(passing, "device", float(moment))
    index.store(range(4_000), "device", 200.0)
    assert index.resident() == {"device": 4_000}
    assert index.resident_share == 1.0
    assert index.removed_share < 1.0


@pytest.mark.parametrize("hashes", [lambda r: r.getrandbits(64), lambda r: r.getrandbits(14) << 50])
def test_beyond_the_limit_estimates_stay_near_the_truth(hashes: object) -> None:
    """40,000 resident blocks and 20,000 re-warmed ones followed with a tenth of the entries."""
    assert callable(hashes)
    chance = random.Random(2)
    blocks = list({hashes(chance) for _ in range(60_000)})[:40_000]
    index = BlockIndex(len(blocks) // 10)
    half = blocks[: len(blocks) // 2]
    for at in range(0, len(blocks), 100):
        index.store(blocks[at : at + 100], "device", 0.0)
    index.remove(half, "device", 10.0)
    index.store(half, "device", 25.0)
    assert index.entries <= len(blocks) // 10
    assert index.resident()["device"] == pytest.approx(len(blocks), rel=0.1)
    assert index.rewarmed == pytest.approx(len(half), rel=0.15)
    delays = index.delays()
    assert delays.counts[-1] == index.rewarmed
    assert delays.sum == 15.0 * index.rewarmed


def test_hashes_of_any_size_take_the_room_of_an_integer() -> None:
    index = BlockIndex(1_000)
    tracemalloc.start()
    for number in range(50):
        index.store([number.to_bytes(1 << 20, "big")], "device", 0.0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index.resident() == {"device": 50}
    assert size < 1 << 20


def test_memory_does_not_grow_with_the_number_of_blocks() -> None:
    """300,000 different blocks pass; what is kept stays below 200 bytes an entry."""
    chance = random.Random(3)
    index = BlockIndex(20_000)
    tracemalloc.start()
    for moment in range(600):
        passing = [chance.getrandbits(64) for _ in range(500)]
        index.store(passing, "device", float(moment))
        index.remove(passing, "device", float(moment))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000 * 200
