"""What a cold test sends: the same for the same seed, in a steady mix, and prompts of the user's own."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.coldtest.load import CYCLE, WORDS, GeneratedLoad, Request, Shape, estimate
from kvcache_exporter.coldtest.prompts import read_prompts
from kvcache_exporter.errors import ConfigError


def shape(
    *, requests: int = 60, prefix: int = 160, unique: float = 0.2, seed: int = 1, max_tokens: int = 8
) -> Shape:
    return Shape(
        requests=requests, warm_up=20, concurrency=1, max_tokens=max_tokens, seed=seed,
        shared_prefix=prefix, unique_share=unique,
    )  # fmt: skip


def all_of(load: GeneratedLoad) -> list[Request]:
    return [load.request(number) for number in range(len(load))]


@given(st.integers(0, 2**31), st.integers(1, 80), st.integers(16, 400), st.floats(0, 1))
def test_a_shape_is_always_the_same_load(seed: int, requests: int, prefix: int, unique: float) -> None:
    one, other = (
        all_of(shape(seed=seed, requests=requests, prefix=prefix, unique=unique).generated("measure"))
        for _ in range(2)
    )
    assert one == other
    assert len(one) == requests


def test_texts_are_these_on_every_machine() -> None:
    """A result can be judged against one from another machine, so the words of a seed never change."""
    (system, user) = shape().generated("measure").request(0).messages
    assert (system["role"], user["role"]) == ("system", "user")
    assert system["content"].startswith("near animal mother work mind ")
    assert user["content"].startswith("land many carry star should")


@given(st.floats(0, 1), st.integers(0, 200))
def test_any_twenty_requests_in_a_row_have_the_mix(unique: float, start: int) -> None:
    kinds = [request.kind for request in all_of(shape(requests=240, unique=unique, prefix=16).generated("m"))]
    window = kinds[start : start + CYCLE]
    assert abs(window.count("unique") - CYCLE * unique) <= 2
    assert abs(window.count("shared") - CYCLE * 0.625 * (1 - unique)) <= 2


@given(st.integers(1, 300), st.floats(0, 0.9))
def test_turns_of_a_conversation_follow_each_other_and_grow(requests: int, unique: float) -> None:
    made = all_of(shape(requests=requests, prefix=16, unique=unique).generated("measure"))
    for number, request in enumerate(made):
        if request.after is not None:
            assert request.after < number
            before = made[request.after]
            assert before.kind == request.kind == "conversation"
            assert request.messages[: len(before.messages)] == before.messages
            assert [m["role"] for m in request.messages[len(before.messages) :]] == ["assistant", "user"]
        elif request.kind == "conversation":
            assert len(request.messages) == 1


def test_only_prefixes_are_shared_and_unique_prompts_never_come_twice() -> None:
    warm_up, measured = (all_of(shape().generated(stream)) for stream in ("warm-up", "measure"))
    systems = {r.messages[0]["content"] for r in (*warm_up, *measured) if r.kind == "shared"}
    assert len(systems) == 4
    assert {len(text.split()) for text in systems} == {160}
    own = [r.messages[-1]["content"] for r in (*warm_up, *measured) if r.kind != "conversation"]
    assert len(set(own)) == len(own)


def test_two_seeds_share_nothing() -> None:
    one, other = (all_of(shape(seed=seed).generated("measure")) for seed in (1, 2))
    assert not {str(r.messages) for r in one} & {str(r.messages) for r in other}


def test_words_are_plain_and_the_estimate_counts_them() -> None:
    assert len(set(WORDS)) == len(WORDS) > 400
    assert all(word.isascii() and word.islower() and word.isalpha() for word in WORDS)
    for request in all_of(shape().generated("measure")):
        words = sum(len(m["content"].split()) for m in request.messages)
        assert words <= estimate(request.messages) <= 1.1 * words + 6 * len(request.messages)


def test_prompts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "hello"}\n\n{"messages": [{"role": "system", "content": "s", "name": "x"}, '
        '{"role": "user", "content": "ü"}], "model": "m"}\n'
    )
    prompts, digest = read_prompts(path)
    assert prompts == [
        [{"role": "user", "content": "hello"}],
        [{"role": "system", "content": "s"}, {"role": "user", "content": "ü"}],
    ]
    path.write_text(path.read_text() + " ")
    assert read_prompts(path)[1] != digest


@pytest.mark.parametrize(
    "line",
    [
        "SECRET",
        "[1]",
        '{"prompt": 1}',
        '{"prompt": ""}',
        '{"messages": []}',
        '{"messages": [{"role": "SECRET"}]}',
        '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
        '{"text": "SECRET"}',
        "\udcff",
    ],
)
def test_a_bad_line_is_named_and_never_shown(line: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line, errors="surrogateescape")
    with pytest.raises(ConfigError) as raised:
        read_prompts(path)
    assert str(raised.value).startswith(f"{path}:2: expected ")
    assert "SECRET" not in str(raised.value)


def test_an_empty_file_of_prompts_says_what_belongs_there(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="no prompt in it; expected"):
        read_prompts(path)


def test_turns_that_are_open_at_once_let_several_threads_work() -> None:
    """A turn comes at least three turns of other conversations after the one it waits for."""
    made = all_of(shape(requests=200, unique=0).generated("measure"))
    turns = [number for number, request in enumerate(made) if request.kind == "conversation"]
    places = {number: place for place, number in enumerate(turns)}
    waits = [(request.after, number) for number, request in enumerate(made) if request.after is not None]
    assert waits
    assert all(places[number] - places[after] == 3 for after, number in waits if after is not None)
    assert all(a < b for a, b in pairwise(turns))
