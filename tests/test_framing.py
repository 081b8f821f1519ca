"""Framing comes off line by line, the same whatever the batches, and costs plain lines nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.requests.framing import OVERFLOW, Framer, is_plain

FIXTURES = Path(__file__).parent / "fixtures" / "framing"
TIME = b"2026-11-29T10:00:03.000000000Z"


def cri(stream: str, tag: str, text: bytes) -> bytes:
    return TIME + f" {stream} {tag} ".encode() + text


def docker(stream: str, text: str) -> bytes:
    return json.dumps(
        {"log": text, "stream": stream, "time": "2026-11-29T10:00:03Z"}, separators=(",", ":")
    ).encode()


@pytest.mark.parametrize(
    ("name", "text"), [("k8s_cri.log", b"INFO: started"), ("docker_json.jsonl", b"plain text")]
)
def test_recorded_container_logs_give_their_records(name: str, text: bytes) -> None:
    """Partial lines are joined, other streams do not get in between."""
    records = Framer().feed((FIXTURES / name).read_bytes().split(b"\n")[:-1])
    usage = [record for record in records if record != text]
    assert len(records) == 3
    assert [json.loads(record)["usage"]["prompt_tokens"] for record in usage] == [2006, 2006]


def test_plain_batches_come_back_as_they_are() -> None:
    """No line is touched or copied."""
    lines = [b'{"a":1}', b'{"b":[2]}', b'{"logger":"x"}']
    assert Framer().feed(lines) is lines


def test_partial_lines_are_joined_by_stream() -> None:
    framer = Framer()
    first = framer.feed([cri("stdout", "P", b"{"), cri("stderr", "P", b"x")])
    second = framer.feed([cri("stderr", "F", b"y"), cri("stdout", "F", b"}")])
    assert (first, second) == ([], [b"xy", b"{}"])


def test_docker_line_without_newline_goes_on_in_the_next() -> None:
    lines = [docker("stdout", '{"a":'), docker("stderr", "x\n"), docker("stdout", "1}\n")]
    assert Framer().feed(lines) == [b"x", b'{"a":1}']


@pytest.mark.parametrize(
    "line",
    [
        b'{"log":"{}","kubernetes":{}}',
        b'{"log":"\\ud800\\n","stream":"stdout","time":"x"}',
        b'{"log":{"a":1},"stream":"stdout","time":"x"}',
        b'{"message":"{}","file":"x"}',
        b"2026-11-29T10:00:03Z stdin F x",
        b"2026 is a year",
        b"",
        b"\xff\xfe",
    ],
)
def test_what_only_looks_wrapped_passes_unchanged(line: bytes) -> None:
    assert Framer().feed([line]) == [line]


def test_array_over_many_lines_gives_its_elements() -> None:
    lines = [b"[", b'{"a":1},', b'  {"b":[2]},\r', b'{"c":3}', b"]"]
    assert Framer().feed(lines) == [b'{"a":1}', b'{"b":[2]}', b'{"c":3}']


@given(cut=st.integers(0, 7))
def test_array_is_recognised_wherever_the_batch_is_cut(cut: int) -> None:
    lines = [b'{"z":0}', b"[", b'{"a":1},', b'{"b":2},', b'{"c":3}', b"]", b'{"d":4}']
    framer = Framer()
    records = framer.feed(lines[:cut]) + framer.feed(lines[cut:])
    assert records == [b'{"z":0}', b'{"a":1}', b'{"b":2}', b'{"c":3}', b'{"d":4}']


def test_whole_array_on_one_line_is_left_to_the_decoder() -> None:
    assert Framer().feed([b'[{"a":1},{"b":2}]']) == [b'[{"a":1},{"b":2}]']


def test_byte_order_mark_is_taken_off() -> None:
    assert Framer().feed([b'\xef\xbb\xbf{"a":1}']) == [b'{"a":1}']


def test_record_longer_than_allowed_is_dropped_and_told_once() -> None:
    framer = Framer(max_bytes=10)
    parts = [cri("stdout", "P", b"x" * 8)] * 1000
    assert framer.feed(parts) == []
    assert sum(len(part) for part in framer._partials[b"stdout"].parts) <= 10
    records = framer.feed([cri("stdout", "F", b"x"), cri("stdout", "F", b"y")])
    assert records[0] is OVERFLOW
    assert records[1:] == [b"y"]


def test_invented_stream_names_take_no_memory() -> None:
    framer = Framer()
    framer.feed([docker(f"s{number}", "x") for number in range(1000)])
    assert len(framer._partials) == 1


LINES = st.lists(
    st.one_of(
        st.builds(
            cri, st.sampled_from(["stdout", "stderr"]), st.sampled_from("FP"), st.sampled_from([b"", b"abc"])
        ),
        st.builds(docker, st.sampled_from(["stdout", "stderr"]), st.sampled_from(["x", "y\n"])),
        st.sampled_from([b'{"a":1}', b"[", b'{"b":1},', b"]", b"text", b""]),
    ),
    max_size=30,
)


@given(lines=LINES, data=st.data())
def test_batches_do_not_matter(lines: list[bytes], data: st.DataObject) -> None:
    """Fed one by one or at once, the records are the same."""
    cut = data.draw(st.integers(0, len(lines)))
    whole = Framer().feed(list(lines))
    framer, single = Framer(), Framer()
    assert framer.feed(lines[:cut]) + framer.feed(lines[cut:]) == whole
    assert [record for line in lines for record in single.feed([line])] == [r for r in whole if r is not None]


@given(lines=LINES, data=st.data())
def test_restart_at_the_held_bytes_gives_each_record_once(lines: list[bytes], data: st.DataObject) -> None:
    """`held_bytes` and `held_records` are enough to go on with a fresh framer."""
    cut = data.draw(st.integers(0, len(lines)))
    before = Framer()
    given_before = before.feed(lines[:cut])
    text = b"".join(line + b"\n" for line in lines)
    position = sum(len(line) + 1 for line in lines[:cut]) - before.held_bytes
    again = Framer().feed(text[position:].split(b"\n")[:-1])
    assert len(given_before) + len(again[before.held_records :]) == len(Framer().feed(list(lines)))
    rest = before.feed(lines[cut:])
    assert again[len(again) - len(rest) :] == rest


@given(lines=st.lists(st.sampled_from([b'{"a":1}', b'{"log":1}', b"[", b"", b"x"]), max_size=6))
def test_only_batches_of_plain_objects_are_plain(lines: list[bytes]) -> None:
    assert is_plain(lines) == (bool(lines) and set(lines) == {b'{"a":1}'})
