"""anthropic_stream: many events make one record, whatever their order and wherever the log breaks off."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.errors import RecordError, StateError
from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.anthropic_stream import MAX_PENDING, StreamDecoder
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry


def decoder(**options: str) -> StreamDecoder:
    made = get_format("anthropic_stream").decoder(DecoderOptions(**options))  # type: ignore[arg-type]
    assert isinstance(made, StreamDecoder)
    return made


def start(request: str | None, *usage: int | None, **extra: Any) -> bytes:
    message = {"id": f"msg_{request}", "model": "claude-sonnet-5", "usage": counts(*usage)}
    return line(request, {"type": "message_start", "message": message, **extra})


def delta(request: str | None, *usage: int | None, stop: str | None = None) -> bytes:
    return line(request, {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": counts(*usage)})


def stop(request: str | None) -> bytes:
    return line(request, {"type": "message_stop"})


def counts(*usage: int | None) -> dict[str, int | None]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    return dict(zip(names, usage, strict=False))


def line(request: str | None, event: dict[str, Any]) -> bytes:
    return json.dumps(event if request is None else {"request_id": request, **event}).encode()


def summary(entry: Entry) -> tuple[Any, ...]:
    assert isinstance(entry, RequestRecord), entry
    return (*entry[:4], entry.status, entry.request_id)


def test_cumulative_counts_are_not_summed() -> None:
    """The last value of each field counts: deltas repeat and raise what the start said."""
    lines = [start("a", 9, 6100, 700, 1), delta("a", 9, 6100, 700, 50), delta("a", None, None, None, 88)]
    (entry,) = decoder().decode([*lines, stop("a")])
    assert summary(entry) == (6809, 6100, 700, 88, "ok", "a")


def test_later_zero_overwrites() -> None:
    """A later 0 is a value; only null and absent fields leave what was there."""
    (entry,) = decoder().decode([start("a", 100, 50, 0, 1), delta("a", 150, 0, None, 5, stop="end_turn")])
    assert summary(entry) == (150, 0, 0, 5, "ok", "a")


def test_interleaved_requests() -> None:
    """Events of two requests do not mix."""
    lines = [start("a", 10, 1, 0, 0), start("b", 20, 2, 0, 0), delta("b", stop="x"), delta("a", stop="x")]
    assert [summary(e)[0] for e in decoder().decode(lines)] == [22, 11]


def test_nothing_after_the_end_counts_again() -> None:
    """message_stop and repeated deltas after the end of a stream give nothing."""
    end = delta("a", 10, 1, 0, 5, stop="end_turn")
    assert len(decoder().decode([start("a", 10, 1, 0, 0), end, stop("a"), end, stop("a")])) == 1


def test_events_without_ids_belong_to_the_stream_before() -> None:
    """A plain dump of server-sent events has its id in message_start only."""
    dump = [start(None, 10, 1, 0, 0), b"event: ping", b"data: " + delta(None, stop="x"), stop(None)]
    skipped, entry = decoder().decode(dump)
    assert isinstance(skipped, Skipped)
    assert summary(entry)[:2] == (11, 1)


def test_broken_off_stream_is_truncated() -> None:
    """flush gives what the start said; nothing is given twice."""
    made = decoder()
    assert made.decode([start("a", 10, 0, 5000, 1)]) == []
    (entry,) = made.flush()
    assert summary(entry) == (5010, 0, 5000, 1, "truncated", "a")
    assert made.flush() == []


def test_pending_requests_are_bounded() -> None:
    """Of more unfinished streams than the bound, the oldest is given up as truncated."""
    made = decoder()
    entries = made.decode([start(str(i), i + 1, 0, 0, 0) for i in range(MAX_PENDING + 2)])
    assert [summary(e)[-2:] for e in entries] == [("truncated", "0"), ("truncated", "1")]
    assert len(made.flush()) == MAX_PENDING


def test_error_event_fails_the_request() -> None:
    """A stream that ends in an error is a failed request and no record."""
    error = line("a", {"type": "error", "error": {"type": "overloaded_error"}})
    (entry,) = decoder().decode([start("a", 10, 0, 0, 0), error, stop("a")])
    assert isinstance(entry, Skipped)
    assert (entry.reason, entry.model_name) == ("server_error", "claude-sonnet-5")


def test_bad_count_costs_one_line() -> None:
    """A delta whose counts are invalid is counted as such; the request still ends."""
    bad = delta("a", -5, stop=None)
    entries = decoder().decode([start("a", 10, 0, 0, 1), bad, stop("a")])
    assert isinstance(entries[0], RecordError)
    assert summary(entries[1])[0] == 10


def test_group_by_and_labels() -> None:
    """The group comes from the first event that has it."""
    lines = [start("a", 10, 0, 0, 1, tenant="acme"), delta("a", stop="x")]
    (entry,) = decoder(group_by="tenant").decode(lines)
    assert isinstance(entry, RequestRecord)
    assert (entry.group, entry.provider, entry.minimum_tokens) == ("acme", "anthropic", 1024)


def test_snapshot_holds_no_text() -> None:
    """Text of the reply and of the prompt never gets into the state file."""
    made = decoder()
    block = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "SECRET"}}
    made.decode([start("a", 10, 0, 0, 1, prompt="SECRET"), line("a", block)])
    assert b"SECRET" not in made.snapshot()
    assert b"claude-sonnet-5" in made.snapshot()


def test_damaged_snapshot_is_refused() -> None:
    """A state that is not ours is an error that says what to do."""
    with pytest.raises(StateError, match="move the file at state"):
        decoder().restore(b"\xffnonsense")
    decoder().restore(b"")


EVENTS = st.sampled_from(("start", "delta", "end", "stop", "null"))


def event(kind: str, request: str, tokens: int) -> bytes:
    made = {
        "start": start(request, tokens, 1, 2, 0),
        "delta": delta(request, tokens),
        "end": delta(request, None, None, None, tokens, stop="end_turn"),
        "stop": stop(request),
        "null": delta(request, None, None),
    }
    return made[kind]


@given(
    st.lists(st.tuples(EVENTS, st.sampled_from("abc"), st.integers(1, 1000)), max_size=30), st.integers(0, 30)
)
def test_restart_anywhere_changes_nothing(events: list[tuple[str, str, int]], cut: int) -> None:
    """Decoding with a snapshot and restore at any line gives the entries of decoding in one go."""
    lines = [event(*made) for made in events]
    whole = decoder()
    expected = [*whole.decode(lines), *whole.flush()]
    before, after = decoder(), decoder()
    got = before.decode(lines[:cut])
    after.restore(before.snapshot())
    got += [*after.decode(lines[cut:]), *after.flush()]
    assert [repr(e) for e in got] == [repr(e) for e in expected]
    ids = [e.request_id for e in expected if isinstance(e, RequestRecord)]
    assert len(ids) == len(set(ids))
