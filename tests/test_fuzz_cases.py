"""Every fuzz target against what once broke it, its seeds, and seeds with damage."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.corpus import seeds
from fuzz.targets import SPLIT, TARGETS

CASES = sorted((Path(__file__).parent / "fuzz" / "cases").rglob("*.bin"))
every_target = pytest.mark.parametrize("target", sorted(TARGETS))


@pytest.mark.parametrize("case", CASES, ids=[f"{path.parent.name}/{path.stem}" for path in CASES])
def test_what_once_broke_something_does_so_no_more(case: Path) -> None:
    TARGETS[case.parent.name](case.read_bytes())


@every_target
def test_seeds_are_taken(target: str) -> None:
    assert seeds(target)
    for seed in seeds(target):
        TARGETS[target](seed)


@every_target
@settings(max_examples=25)
@given(data=st.data())
def test_bytes_and_damaged_inputs_break_nothing(target: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from([b"", *seeds(target)]))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(seed))] * 2)))
    junk = data.draw(st.binary(max_size=60) | st.sampled_from([SPLIT, b"\xff" * 9, b"1e999", b"[" * 3000]))
    TARGETS[target](seed[:start] + junk + seed[end:])
