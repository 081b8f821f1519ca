"""The estimate of re-warming, against a cache whose evictions are known."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.rewarm import ESTABLISHED

PREAMBLE = 2048


def stream(losses: set[int], count: int, other: float = 0.0, seed: int = 1) -> list[RequestRecord]:
    """Requests of one group that share a preamble; before those numbered in `losses` the cache lost it."""
    rng, held, made = random.Random(seed), 0, []
    for number in range(count):
        if number in losses:
            held = 0
        if rng.random() < other:
            made.append(RequestRecord(rng.randrange(3000, 9000), 0))
            continue
        # One that finds nothing is long: a short prompt cannot show a loss.
        more = rng.randrange(0, 4000) if held else 6000
        made.append(RequestRecord(PREAMBLE + more + 100, min(held, PREAMBLE) + (more if held else 0)))
        held = PREAMBLE
    return made


def rewarms(records: list[RequestRecord]) -> int:
    ledger = Ledger("s", FullHit())
    ledger.add(records)
    return next(iter(ledger.tallies.values())).floor.events


@given(st.sets(st.integers(1, 400)), st.integers(0, 100))
def test_losses_that_lie_apart_are_counted_one_by_one(losses: set[int], seed: int) -> None:
    apart: list[int] = []
    for number in sorted(losses):
        if number - (apart[-1] if apart else 0) > ESTABLISHED:
            apart.append(number)
    events = rewarms(stream(set(apart), 401, seed=seed))
    assert events == len(apart)


def test_requests_that_miss_together_count_once() -> None:
    events = rewarms([*stream(set(), 50), *[RequestRecord(5000, 0)] * 16, *stream(set(), 5)])
    assert events == 1


def test_a_prompt_shorter_than_the_floor_says_nothing() -> None:
    events = rewarms([*stream(set(), 50), RequestRecord(100, 0), RequestRecord(1000, None)])
    assert events == 0


def test_a_group_of_mixed_requests_is_the_documented_error() -> None:
    """Requests of another kind are taken for losses, or keep a floor from being established."""
    events = rewarms(stream(set(), 2000, other=0.1))
    assert 0 < events < 0.1 * 2000
