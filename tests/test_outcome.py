"""The outcome rule: exactly one outcome for every pair of counts, at the edges design and providers give."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.model import OUTCOMES, Outcome
from kvcache_exporter.requests.outcome import FullHit, classify

DEFAULT = FullHit()


@pytest.mark.parametrize(
    ("prompt", "cached", "granule", "minimum", "expected"),
    [
        (2000, None, 128, 1024, "unknown"),
        (None, None, 128, 1024, "unknown"),
        (1023, 0, 128, 1024, "uncacheable"),
        (1024, 0, 128, 1024, "miss"),
        (900, 512, 128, 1024, "partial"),  # below the minimum and yet cached: what was read counts
        (2048, 2032, 16, 16, "full"),  # an engine always computes its last block
        (44, 32, 16, 16, "full"),
        (33, 16, 16, 16, "partial"),
        (1000, 950, 1, 0, "full"),
        (1000, 949, 1, 0, "partial"),
        (100_000, 98_976, 1, 0, "full"),  # the cap of 1,024, not 5 %
        (100_000, 98_975, 1, 0, "partial"),
        (0, 0, 1, 0, "miss"),
    ],
)
def test_edges(prompt: int | None, cached: int | None, granule: int, minimum: int, expected: Outcome) -> None:
    """Each limit belongs to the better side."""
    assert classify(prompt, cached, granule, minimum, DEFAULT) == expected


def test_written_tokens_do_not_make_a_hit_full() -> None:
    """Written tokens were computed: 2,048 of 6,000 read is partial though 3,900 more were written."""
    assert classify(6000, 2048, 128, 1024, DEFAULT) == "partial"


def test_definition_is_configurable() -> None:
    """Fraction and cap are the operator's."""
    assert classify(1000, 800, 1, 0, FullHit(fraction=0.2)) == "full"
    assert classify(1000, 800, 1, 0, FullHit(fraction=0.2, max_uncached_tokens=100)) == "partial"


COUNT = st.integers(0, 10**9)


@given(COUNT, st.data(), st.integers(1, 4096), st.integers(0, 8192))
def test_exactly_one_outcome(prompt: int, data: st.DataObject, granule: int, minimum: int) -> None:
    """Every input gets the outcome whose condition holds, and no other one's does."""
    cached = data.draw(st.none() | st.integers(0, prompt))
    uncached = prompt - (cached or 0)
    near = uncached <= max(granule, min(0.05 * prompt, 1024))
    holds = {
        "unknown": cached is None,
        "uncacheable": cached == 0 and prompt < minimum,
        "miss": cached == 0 and prompt >= minimum,
        "full": bool(cached) and near,
        "partial": bool(cached) and not near,
    }
    assert [name for name in get_args(Outcome) if holds[name]] == [
        classify(prompt, cached, granule, minimum, DEFAULT)
    ]
    assert set(holds) == set(OUTCOMES)


@given(st.integers(1, 10**9), st.data(), st.integers(1, 4096))
def test_more_cached_is_never_worse(prompt: int, data: st.DataObject, granule: int) -> None:
    """Among hits, caching more of the same prompt never turns full into partial."""
    fewer = data.draw(st.integers(1, prompt))
    more = data.draw(st.integers(fewer, prompt))
    if classify(prompt, fewer, granule, 0, DEFAULT) == "full":
        assert classify(prompt, more, granule, 0, DEFAULT) == "full"
