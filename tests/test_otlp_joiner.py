"""Joining halves of requests: each in one record, whatever the order, repeats, window and restarts."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.errors import StateError
from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import Entry
from kvcache_exporter.requests.joiner import Joiner, JoinOptions

CHAT, COMPLETION = "chatcmpl-1", "cmpl-1"


def usage(key: str = CHAT) -> RequestRecord:
    return RequestRecord(100, 64, output_tokens=7, group="chat", request_id=key)


def span(key: str = CHAT) -> RequestRecord:
    return RequestRecord(100, None, ttft_seconds=0.25, duration_seconds=2.0, group="vllm", request_id=key)


def joiner(window: float = 60.0, most: int = 100) -> Joiner:
    return Joiner(JoinOptions(window, most), {}, {})


def saved(found: Joiner, state: dict[str, dict[str, bytes]]) -> dict[str, dict[str, bytes]]:
    """What the state file holds after a commit."""
    waiting, gone, ids, dropped = found.changes()
    found.committed()
    for space, puts, deletes in (("join", waiting, gone), ("joined", ids, dropped)):
        state.setdefault(space, {}).update(puts)
        for key in deletes:
            del state[space][key]
    return state


BOTH = usage()._replace(ttft_seconds=0.25, duration_seconds=2.0)


def test_two_halves_are_one_record_in_any_order() -> None:
    first = joiner()
    assert first.usage(usage(), 0) == []
    assert first.span(span(), 59) == [BOTH]
    second = joiner()
    assert second.span(span(), 0) == []
    assert second.usage(usage(), 59) == [BOTH]
    assert first.results == second.results == {"joined": 1}
    assert first.size == second.size == 0


def test_a_completion_is_joined_to_the_span_of_its_first_prompt() -> None:
    found = joiner()
    assert found.span(span(f"{COMPLETION}-1"), 0) == [Skipped("duplicate")]
    assert found.span(span(f"{COMPLETION}-0"), 0) == []
    assert found.usage(usage(COMPLETION), 1) == [BOTH._replace(request_id=COMPLETION)]
    assert found.span(span("chatcmpl-a-0"), 2) == []
    assert found.usage(usage("chatcmpl-a"), 2) == [], "ids of chats have no number behind them"


def test_what_waited_for_the_window_is_a_record_by_itself_and_its_other_half_late() -> None:
    found = joiner()
    found.usage(usage("chatcmpl-a"), 0)
    found.span(span("chatcmpl-b"), 1)
    assert found.expire(59.9) == []
    assert found.expire(60) == [usage("chatcmpl-a")]
    assert found.expire(61) == [span("chatcmpl-b")]
    assert found.span(span("chatcmpl-a"), 62) == [Skipped("late")]
    assert found.usage(usage("chatcmpl-b"), 62) == [Skipped("late")]
    assert found.results == {"usage_only": 1, "span_only": 1}


def test_with_too_many_waiting_the_oldest_makes_room() -> None:
    found = joiner(most=2)
    found.span(span("chatcmpl-a"), 0)
    found.usage(usage("chatcmpl-b"), 1)
    assert found.usage(usage("chatcmpl-c"), 2) == [span("chatcmpl-a")]
    assert found.usage(usage("chatcmpl-d"), 3) == [usage("chatcmpl-b")]
    assert found.results == {"span_only": 1, "usage_only": 1, "evicted": 2}
    assert found.size == 2


def test_counts_are_taken_from_one_half_and_never_mixed() -> None:
    found = joiner()
    found.span(RequestRecord(300, 200, ttft_seconds=1.0, request_id="r"), 0)
    (record,) = found.usage(RequestRecord(250, None, ttft_seconds=2.0, request_id="r"), 0)
    assert record == RequestRecord(300, 200, ttft_seconds=2.0, request_id="r"), "the log's own time wins"


def test_what_waits_survives_a_restart_and_waits_a_window_more() -> None:
    before = joiner()
    before.usage(usage("chatcmpl-a"), 0)
    before.span(span("chatcmpl-b"), 0)
    before.usage(usage("chatcmpl-c"), 0)
    state = saved(before, {})
    before.span(span("chatcmpl-c"), 1)
    state = saved(before, state)
    after = Joiner(JoinOptions(60), state["join"], state["joined"])
    assert after.size == 2
    assert after.expire(1000) == []
    assert after.span(span("chatcmpl-c"), 1001) == [Skipped("duplicate")]
    assert after.span(span("chatcmpl-a"), 1059) == [BOTH._replace(request_id="chatcmpl-a")]
    assert after.expire(1060) == [span("chatcmpl-b")]
    assert after.results == {"joined": 2, "span_only": 1}
    assert [key for key in saved(after, state)["join"] if ":" in key] == []


def test_a_damaged_state_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(StateError, match=r"move the file at state\.path away"):
        Joiner(JoinOptions(), {"usage:a": b"\xc1"}, {})


STEPS = st.lists(
    st.tuples(st.sampled_from(["usage", "span", "expire", "restart"]), st.integers(0, 6), st.integers(0, 40)),
    max_size=60,
)


@given(STEPS, st.integers(1, 5))
def test_every_request_is_in_exactly_one_record(steps: list[tuple[str, int, int]], most: int) -> None:
    """Whatever comes in whatever order, twice, after its window, or across restarts."""
    options = JoinOptions(60.0, most)
    found, state, now = Joiner(options, {}, {}), dict[str, dict[str, bytes]](), 0.0
    out: list[Entry] = []
    taken: set[tuple[str, str]] = set()
    for step, number, pause in steps:
        now += pause
        key = f"cmpl-k{number}"
        if step == "usage":
            out += found.usage(usage(key), now)
        elif step == "span":
            out += found.span(span(f"{key}-0"), now)
        elif step == "expire":
            out += found.expire(now)
        else:
            state = saved(found, state)
            found = Joiner(options, state["join"], state["joined"])
        if step in ("usage", "span"):
            taken.add((step, key))
        assert found.size <= most
    out += found.expire(now)
    out += found.expire(now + 60)
    records = [entry for entry in out if isinstance(entry, RequestRecord)]
    counted = Counter(record.request_id.removesuffix("-0") for record in records)
    assert counted == dict.fromkeys({key for _, key in taken}, 1)
    skipped = [entry.reason for entry in out if isinstance(entry, Skipped)]
    joined = sum(record.cached_tokens is not None and record.ttft_seconds is not None for record in records)
    assert joined == found.results["joined"]
    assert joined + len(records) + len(skipped) == sum(step in ("usage", "span") for step, *_ in steps)
    assert skipped.count("late") == len(taken) - joined - len(records)
    assert found.size == 0
