"""A streamed reply is read the same in whatever pieces it comes, and every broken one has a reason."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.coldtest.stream import Reply, RequestError, read_reply


def event(delta: object, **more: object) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta}], **more}, ensure_ascii=False)


USAGE = {"prompt_tokens": 70, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 64}}
ROLE = event({"role": "assistant", "content": ""})
END = f"data: {json.dumps({'choices': [], 'usage': USAGE})}\n\ndata: [DONE]\n\n"
WHOLE = f": comment\r\n\r\n{ROLE}\r\n\r\n{event({'content': 'Grüße 日本'})}\n\n{event({})}\n\n{END}".encode()


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    yield from (data[a:b] for a, b in pairwise(edges))
    while True:
        yield b""


def read(data: bytes, *cuts: int) -> Reply:
    coming = pieces(data, list(cuts))
    return read_reply(lambda: next(coming), time.perf_counter())


@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_in_any_pieces(cuts: list[int]) -> None:
    reply = read(WHOLE, *cuts)
    assert reply[:3] == (70, 64, 2)
    assert reply.ttft is not None
    assert 0 <= reply.ttft <= reply.duration


@given(st.integers(0, len(WHOLE) - 17))
def test_a_stream_without_its_end_is_cut_off(length: int) -> None:
    with pytest.raises(RequestError, match=r"^cut off$"):
        read(WHOLE[:length] or b"\n")


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning"])
def test_text_and_thoughts_are_first_tokens(field: str) -> None:
    assert read(f"{ROLE}\n\n{event({field: 'x'})}\n\n{END}".encode()).ttft is not None


@pytest.mark.parametrize("delta", [{"role": "assistant"}, {"content": None}, {"reasoning": ""}, None])
def test_what_has_no_text_is_no_first_token(delta: object) -> None:
    assert read(f"{event(delta)}\n\n{END}".encode()).ttft is None


def test_usage_in_every_chunk_counts_once_and_the_last_wins() -> None:
    early = event({"content": "x"}, usage={"prompt_tokens": 70, "completion_tokens": 1})
    assert read(f"{early}\n\n{END}".encode())[:3] == (70, 64, 2)


@pytest.mark.parametrize(("line", "reason"), [
    ('data: {"error": {"message": "SECRET"}}', "error in the stream"),
    ("data: SECRET", "malformed stream"),
    ('data: {"choices": "SECRET"}', "malformed stream"),
    ('data: {"choices": [], "usage": {"prompt_tokens": -1}}', "malformed stream"),
    ("data: \udcff", "malformed stream"),
])  # fmt: skip
def test_reasons_are_closed_and_quote_nothing(line: str, reason: str) -> None:
    with pytest.raises(RequestError) as raised:
        read(line.encode(errors="surrogateescape") + b"\n\n")
    assert raised.value.reason == str(raised.value) == reason


@pytest.mark.parametrize("piece", [b"x" * (1 << 16), b": comment\n" * (1 << 13)])
def test_a_reply_without_end_is_bounded(piece: bytes) -> None:
    with pytest.raises(RequestError, match="reply too large"):
        read_reply(lambda: piece, time.perf_counter())
