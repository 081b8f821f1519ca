"""Session files of coding agents: lines that repeat, state between lines, restarts, copied sessions."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import StateError
from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.claude_code import MAX_PENDING
from kvcache_exporter.requests.formats.seen import Seen
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.state import StateStore
from test_formats import decode, outcome, sample_lines


def claude(
    key: str, output: int, *, stop: str | None = None, read: int = 22000, written: int = 2200, **more: Any
) -> bytes:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": output,
    }
    message = {"id": key, "model": "claude-opus-5-5", "stop_reason": stop, "usage": usage}
    line = {"type": "assistant", "timestamp": "2026-11-29T10:00:00Z", "sessionId": "s1", "message": message}
    return json.dumps({**line, **more}).encode()


def codex(last: tuple[int, int, int], total: int, **more: Any) -> bytes:
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    info = {
        "total_token_usage": {"input_tokens": total},
        "last_token_usage": dict(zip(names, last, strict=True)),
    }
    payload = {"type": "token_count", "info": info, **more}
    return json.dumps({"timestamp": "2026-11-29T10:00:02Z", "type": "event_msg", "payload": payload}).encode()


def records(entries: list[Entry]) -> list[RequestRecord]:
    return [entry for entry in entries if isinstance(entry, RequestRecord)]


def reasons(entries: list[Entry]) -> list[str | None]:
    return [entry.reason if isinstance(entry, Skipped) else None for entry in entries]


def test_every_line_of_a_session_is_accounted_for() -> None:
    """Eight lines: five that are no request or repeat one, two requests, one error message of the client."""
    entries = decode("claude_code", sample_lines("claude_code"))
    assert reasons(entries) == [
        "not_a_request", "duplicate", "duplicate", "duplicate", "not_a_request", "not_a_request", None, None,
    ]  # fmt: skip


def test_the_last_line_of_a_response_counts() -> None:
    """ccusage 888: the first line has output 2, the last 160; it is one request."""
    (entry,) = records(decode("claude_code", [claude("m1", 2), claude("m1", 2), claude("m1", 160)]))
    assert (entry.prompt_tokens, entry.cached_tokens, entry.written_tokens) == (24203, 22000, 2200)
    assert (entry.output_tokens, outcome(entry)) == (160, "partial")


def test_content_blocks_do_not_multiply_a_request() -> None:
    """claude-code 6805: four identical lines of one response are one request, not four."""
    (entry,) = records(decode("claude_code", [claude("m9", 300, read=50000, written=600)] * 4))
    assert (entry.prompt_tokens, entry.cached_tokens, outcome(entry)) == (50603, 50000, "full")


def test_a_response_is_given_as_soon_as_nothing_can_follow() -> None:
    """At its stop reason or at the next response of its own conversation, not at one of a subagent."""
    decoder = get_format("claude_code").decoder(DecoderOptions())
    assert records(decoder.decode([claude("a", 1)])) == []
    assert records(decoder.decode([claude("b", 1, isSidechain=True, agentId="x")])) == []
    (first,) = records(decoder.decode([claude("a", 7, stop="end_turn")]))
    assert (first.request_id, first.output_tokens) == ("a", 7)
    (second,) = records(decoder.decode([claude("c", 1, isSidechain=True, agentId="x")]))
    assert second.request_id == "b"
    assert reasons(decoder.decode([claude("a", 7), claude("b", 9)])) == ["duplicate", "duplicate"]
    assert [entry.request_id for entry in records(decoder.flush())] == ["c"]


def test_what_is_held_back_is_bounded() -> None:
    """A thousand conversations at once hold back 256 responses; the oldest are given up first."""
    decoder = get_format("claude_code").decoder(DecoderOptions())
    lines = [claude(f"m{n}", 1, agentId=f"agent {n}") for n in range(1000)]
    given = records(decoder.decode(lines))
    assert [entry.request_id for entry in given] == [f"m{n}" for n in range(1000 - MAX_PENDING)]
    assert len(decoder.flush()) == MAX_PENDING


def test_a_copied_session_is_not_counted_again() -> None:
    """A resumed session repeats the old lines in its own file; only what is new there counts."""
    options = DecoderOptions()
    first, second = (get_format("claude_code").decoder(options) for _ in range(2))
    old = [claude("a", 5, stop="end_turn"), claude("b", 5)]
    got = [*first.decode(old), *first.flush()]
    got += [*second.decode([*old, claude("c", 5)]), *second.flush()]
    assert [entry.request_id for entry in records(got)] == ["a", "b", "c"]


def test_snapshots_hold_no_text() -> None:
    """What the model and the user wrote never gets into the state file."""
    decoder = get_format("claude_code").decoder(DecoderOptions())
    decoder.decode([claude("a", 1, toolUseResult="SECRET", cwd="SECRET")])
    assert b"SECRET" not in decoder.snapshot()
    assert b'"a"' in decoder.snapshot()


@pytest.mark.parametrize("name", ["claude_code", "codex_rollout", "openrouter_activity"])
def test_a_damaged_snapshot_is_refused(name: str) -> None:
    """A state that is not ours is an error that says what to do."""
    with pytest.raises(StateError, match=f"{name} cannot be read .*; move the file at state.path away"):
        get_format(name).decoder(DecoderOptions()).restore(b"\xffnonsense")


def test_conventions_are_never_mixed() -> None:
    """hapi 1389: Claude's counts are disjoint, Codex's inclusive; together 8,000 of 8,180, not 417 %."""
    usage = {"input_tokens": 90, "cache_read_input_tokens": 4000, "cache_creation_input_tokens": 0}
    (one,) = records(decode("anthropic_messages", [json.dumps({"usage": usage}).encode()]))
    (two,) = records(decode("codex_rollout", [codex((4090, 4000, 5), 4090)]))
    pairs = [(entry.prompt_tokens, entry.cached_tokens) for entry in (one, two)]
    assert pairs == [(4090, 4000), (4090, 4000)]


def test_codex_counts_are_inclusive() -> None:
    """codeburn 21: 9,800 of 20,000 are 49 %; what is not said about writes is not zero."""
    (entry,) = records(decode("codex_rollout", [codex((20000, 9800, 40), 20000)]))
    assert (entry.prompt_tokens, entry.cached_tokens, entry.written_tokens) == (20000, 9800, None)
    assert (outcome(entry), entry.output_tokens) == ("partial", 40)


def test_codex_keeps_the_session_and_the_model_over_a_restart() -> None:
    """A token count read after a restart has the model and the session of lines before it."""
    lines = sample_lines("codex_rollout")
    first = get_format("codex_rollout").decoder(DecoderOptions())
    assert reasons(first.decode(lines[:3])) == ["not_a_request", "not_a_request", None]
    second = get_format("codex_rollout").decoder(DecoderOptions())
    second.restore(first.snapshot())
    rest = second.decode(lines[3:])
    assert reasons(rest) == ["duplicate", "not_a_request", None]
    assert [(e.model_name, e.group) for e in records(rest)] == [("gpt-5.6", "sess-9")]


def test_codex_totals_may_pass_what_one_request_can_have() -> None:
    """A session of many hours reads more than a billion tokens in all."""
    (entry,) = records(decode("codex_rollout", [codex((250_000, 249_000, 5), 5_000_000_000)]))
    assert entry.cached_tokens == 249_000


def test_a_forked_session_keeps_its_own_id() -> None:
    """The origin's first line is repeated behind the fork's own."""
    metas = [
        json.dumps({"type": "session_meta", "payload": {"id": name}}).encode() for name in ("own", "origin")
    ]
    (entry,) = records(decode("codex_rollout", [*metas, codex((9, 0, 1), 9)]))
    assert entry.group == "own"


IDS = st.sampled_from([f"m{n}" for n in range(6)])


class Sessions(RuleBasedStateMachine):
    """Two session files, written to, copied, committed and crashed at any moment, against plain truth."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[list[tuple[str, int]]] = [[], []]
        self.read = [0, 0]
        self.counted: list[RequestRecord] = []
        self.lost_lines = 0
        self.store: dict[str, bytes] = {}
        self.saved: tuple[list[int], list[bytes], list[RequestRecord]] = ([0, 0], [b"", b""], [])
        self.start()

    def start(self) -> None:
        seen = Seen()
        seen.restore(self.store)
        self.options = DecoderOptions(seen=seen)
        made = [get_format("claude_code").decoder(self.options) for _ in range(2)]
        self.decoders: list[Decoder] = list(made)
        for decoder, snapshot in zip(self.decoders, self.saved[1], strict=True):
            decoder.restore(snapshot)
        self.read, self.counted = list(self.saved[0]), list(self.saved[2])

    @rule(file=st.integers(0, 1), growth=st.integers(0, 3), fresh=st.booleans())
    def respond(self, file: int, growth: int, fresh: bool) -> None:
        """A line of a new response, or a longer one of the last response of this file."""
        lines = self.files[file]
        if lines and not fresh and lines[-1][0].startswith(f"{file}-"):
            lines.append((lines[-1][0], lines[-1][1] + growth))
        else:
            lines.append((f"{file}-{len(lines)}", growth))

    @rule(file=st.integers(0, 1))
    def follow(self, file: int) -> None:
        new = [claude(key, output) for key, output in self.files[file][self.read[file] :]]
        self.read[file] += len(new)
        self.counted += records(self.decoders[file].decode(new))

    @rule()
    def resume(self) -> None:
        """The second session takes over what the first has finished and what was read of it."""
        self.follow(0)
        self.counted += records(self.decoders[0].flush())
        self.files[1] += self.files[0]

    @rule()
    def commit(self) -> None:
        puts, deletes = self.options.seen.changes()
        self.store.update(puts)
        for key in deletes:
            self.store.pop(key, None)
        self.options.seen.committed()
        snapshots = [decoder.snapshot() for decoder in self.decoders]
        self.saved = (list(self.read), snapshots, list(self.counted))

    @rule()
    def crash(self) -> None:
        self.start()

    @invariant()
    def no_request_is_counted_twice(self) -> None:
        ids = [record.request_id for record in self.counted]
        assert len(ids) == len(set(ids))
        said = {line for lines in self.files for line in lines}
        assert {(record.request_id, record.output_tokens) for record in self.counted} <= said

    def teardown(self) -> None:
        for file in (0, 1):
            self.follow(file)
            self.counted += records(self.decoders[file].flush())
        self.no_request_is_counted_twice()
        assert {record.request_id for record in self.counted} == {
            key for lines in self.files for key, _ in lines
        }


Sessions.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_sessions = Sessions.TestCase


@settings(deadline=None)
@given(
    lines=st.lists(st.tuples(IDS, st.integers(0, 500), st.sampled_from("ab")), max_size=30),
    cut=st.integers(0, 30),
)
def test_restart_at_any_line_changes_nothing(lines: list[tuple[str, int, str]], cut: int) -> None:
    """With the state of the moment of the cut the rest gives what it would have given anyway."""
    made = [claude(key, output, agentId=agent) for key, output, agent in lines]
    whole = get_format("claude_code").decoder(DecoderOptions())
    expected = [*whole.decode(made), *whole.flush()]
    assert len(expected) == len(made)
    first_options = DecoderOptions()
    first = get_format("claude_code").decoder(first_options)
    got = first.decode(made[:cut])
    seen = Seen()
    seen.restore(first_options.seen.changes()[0])
    second = get_format("claude_code").decoder(DecoderOptions(seen=seen))
    second.restore(first.snapshot())
    got += [*second.decode(made[cut:]), *second.flush()]
    assert got == expected


def test_ids_are_remembered_within_bounds_and_saved_by_what_changed() -> None:
    """Of 200,000 ids the last 131,072 and no more than another 1,024 are known; commits are small."""
    seen, store = Seen(), dict[str, bytes]()
    for number in range(200_000):
        assert seen.add("x", f"id {number}")
        if number % 5_000 == 0:
            puts, deletes = seen.changes()
            store.update(puts)
            for key in deletes:
                store.pop(key, None)
            seen.committed()
            assert sum(map(len, puts.values())) < 100_000
    assert 130_000 < len(seen) <= 131_072
    assert not seen.add("x", "id 199999")
    assert seen.add("y", "id 199999")
    restored = Seen()
    restored.restore(store)
    assert not restored.add("x", "id 195000")
    assert restored.add("x", "id 1")
    with pytest.raises(StateError, match="start over"):
        Seen().restore({"0": b"\xc1"})


def source(path: Path, form: str, state: Path) -> tuple[LogSource, StateStore]:
    store = StateStore(state)
    options = SourceOptions("s", (str(path),), "beginning", DecoderOptions(), FullHit())
    return LogSource(options, get_format(form), store), store


def value(reader: LogSource, metric: c.Metric, *labels: str) -> float:
    samples = (s for s in reader.ledger.samples() if s.metric is metric)
    return sum(s.value for s in samples if set(labels) <= set(s.labels) and isinstance(s.value, float))


def test_sessions_are_followed_over_a_restart_and_into_a_resumed_file(tmp_path: Path) -> None:
    """A response half written before the restart and copied after it is one request with its last output."""
    old, state = tmp_path / "old.jsonl", tmp_path / "state.sqlite"
    lines = [claude("a", 5, stop="end_turn"), claude("b", 2), claude("b", 160, stop="end_turn")]
    old.write_bytes(b"\n".join(lines[:2]) + b"\n")
    reader, store = source(tmp_path / "*.jsonl", "auto", state)
    reader.poll(0.0)
    assert value(reader, c.REQUESTS) == 1
    store.close()
    old.write_bytes(b"\n".join(lines) + b"\n")
    resumed = claude("c", 7, stop="end_turn", sessionId="s2")
    (tmp_path / "new.jsonl").write_bytes(b"\n".join([resumed, *lines]) + b"\n")
    reader, store = source(tmp_path / "*.jsonl", "auto", state)
    reader.poll(1.0)
    assert value(reader, c.REQUESTS) == 3
    assert value(reader, c.REQUEST_OUTPUT_TOKENS) == 5 + 160 + 7
    assert value(reader, c.LOG_SKIPPED, "duplicate") == 4
    assert value(reader, c.LOG_LINES) == 7
    store.close()


def test_columns_are_known_after_a_restart_and_anew_after_a_rotation(tmp_path: Path) -> None:
    """The header was read before the restart; the file after the rotation has other columns."""
    path, state = tmp_path / "activity.csv", tmp_path / "state.sqlite"
    path.write_text("generation_id,tokens_cached,tokens_prompt,app_name\ng1,1000,2000,faq\n")
    reader, store = source(tmp_path / "activity.csv*", "auto", state)
    reader.poll(0.0)
    store.close()
    with path.open("a") as file:
        file.write('g2,1999,2000,"faq, long"\n')
    reader, store = source(tmp_path / "activity.csv*", "auto", state)
    reader.poll(1.0)
    assert value(reader, c.REQUEST_CACHED_TOKENS) == 2999
    assert value(reader, c.REQUESTS, "faq, long", "full") == 1
    path.rename(tmp_path / "activity.csv.1")
    path.write_text("generation_id,tokens_prompt,tokens_cached\ng3,3000,0\n")
    reader.poll(2.0)
    assert value(reader, c.REQUEST_PROMPT_TOKENS) == 7000
    assert value(reader, c.REQUEST_CACHED_TOKENS) == 2999
    store.close()
