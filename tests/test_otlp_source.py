"""The source of OTLP exports, alone and joined to a log, with the recordings of real engines."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import StateError
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.joiner import JoinOptions
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.otlp.messages import read
from kvcache_exporter.requests.otlp.source import OtlpSource
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.requests.tally import Histogram
from kvcache_exporter.state import StateStore
from otlp_recording import (
    FULL_HIT,
    SGLANG,
    VLLM,
    as_protobuf,
    exports,
    request_spans,
    ttft_by_outcome,
    usage_lines,
)

WINDOW = 120.0


class Joined:
    """A log and the spans sent for it, on one state file, as the exporter runs them."""

    def __init__(self, folder: Path) -> None:
        self.log_file, self._state = folder / "usage.jsonl", folder / "state.sqlite"
        self.log_file.touch()
        self.start()

    def start(self) -> None:
        self.store = StateStore(self._state)
        options = SourceOptions("usage", (str(self.log_file),), "beginning", DecoderOptions(), FULL_HIT)
        joined = replace(options, join=JoinOptions(WINDOW, 1000))
        self.log = LogSource(joined, get_format("vllm"), self.store)
        spans = replace(options, name="traces", paths=())
        self.otlp = OtlpSource(spans, self.store, lambda: self.log)

    def stop(self) -> None:
        self.log.close()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def write(self, lines: Iterable[bytes], now: float) -> None:
        with self.log_file.open("ab") as file:
            file.writelines(line + b"\n" for line in lines)
        self.log.poll(now)

    def send(self, bodies: Iterable[bytes], now: float) -> None:
        for body in bodies:
            self.otlp.add(self.otlp.decode("traces", read("traces", "protobuf", body, self.otlp.wanted)), now)

    def finish(self, now: float) -> None:
        self.log.poll(now)
        self.log.poll(now + WINDOW + 1)
        self.otlp.poll(now + WINDOW + 1)


def outcomes(ledger: Ledger) -> Counter[str]:
    return sum((Counter(tally.outcomes) for tally in ledger.tallies.values()), Counter())


def seconds(ledger: Ledger) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tally in ledger.tallies.values():
        for outcome, histogram in tally.ttft.items():
            before = found.get(outcome, [0] * len(histogram.counts))
            found[outcome] = [a + b for a, b in zip(before, histogram.counts, strict=True)]
    return found


def buckets(values: Sequence[float]) -> list[int]:
    histogram = Histogram([0] * (len(c.SECONDS_BUCKETS) + 1))
    histogram.add(values, c.SECONDS_BUCKETS)
    return histogram.counts


PROTOBUF = [as_protobuf(export) for export in exports(VLLM)]
TRUTHS = [ttft_by_outcome(choice) for choice in (0, 1)]
OUTCOMES = {outcome: len(values) for outcome, values in TRUTHS[0].items()}
ALONE = ["cmpl-abde5a6bba25dddc-0", "cmpl-b9c971e08d821641-0"]
"""Clients that went away: the engine has a span, the log no line with usage."""


def check_recording(found: Joined) -> None:
    """Each once: 348 that were answered, with the TTFT of their span, and two that nobody waited for."""
    ledger = found.log.ledger
    alone = [
        s["gen_ai.latency.time_to_first_token"]
        for s in request_spans(VLLM)
        if s["gen_ai.request.id"] in ALONE
    ]
    assert sum(OUTCOMES.values()) == 348
    assert outcomes(ledger) == Counter(OUTCOMES) + Counter(unknown=2)
    unknown = {"unknown": buckets([float(value) for value in alone])}
    assert seconds(ledger) in [
        {outcome: buckets(values) for outcome, values in truth.items()} | unknown for truth in TRUTHS
    ]
    assert outcomes(found.otlp.ledger) == {}
    assert found.log.ledger.health.failures == {}


@pytest.fixture
def joined(tmp_path: Path) -> Iterable[Joined]:
    found = Joined(tmp_path)
    yield found
    found.stop()


def test_a_recording_joined_gives_its_exact_outcomes_and_ttft(joined: Joined) -> None:
    joined.write(usage_lines(), 0)
    joined.send(PROTOBUF, 1)
    joined.finish(1)
    check_recording(joined)
    assert joined.log.ledger.health.skipped == {"duplicate": 2}, "a second prompt, and a second choice"
    assert joined.otlp.ledger.health.skipped["not_a_request"] > 0
    assert 'kvcache_join_requests_total{source="usage",result="joined"} 348.0' in (
        joined.log.block[c.JOIN_REQUESTS].text
    )


@pytest.mark.parametrize("seed", range(3))
def test_order_repeats_and_restarts_change_nothing(joined: Joined, seed: int) -> None:
    """Lines and exports in any order, each export at least once, the exporter stopped again and again."""
    shuffled = random.Random(seed)
    lines, bodies = usage_lines(), PROTOBUF + shuffled.choices(PROTOBUF, k=40)
    shuffled.shuffle(lines)
    shuffled.shuffle(bodies)
    now = 0.0
    while lines or bodies:
        now += 0.1
        joined.write([lines.pop() for _ in range(min(len(lines), shuffled.randint(0, 12)))], now)
        joined.send([bodies.pop() for _ in range(min(len(bodies), shuffled.randint(0, 4)))], now)
        if shuffled.random() < 0.1:
            joined.restart()
    joined.finish(now)
    check_recording(joined)


def test_spans_that_come_after_the_window_change_no_outcome_and_are_counted_as_late(joined: Joined) -> None:
    joined.write(usage_lines(), 0)
    joined.log.poll(WINDOW)
    joined.send(PROTOBUF, WINDOW + 1)
    joined.finish(WINDOW + 1)
    assert outcomes(joined.log.ledger) == Counter(OUTCOMES) + Counter(unknown=2)
    assert joined.log.ledger.health.skipped["late"] == 348
    assert sum(map(sum, seconds(joined.log.ledger).values())) == 2


def test_nothing_is_acknowledged_that_is_not_in_the_state_file(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at every other commit: the sender repeats what failed, and each request counts once."""
    joined.write(usage_lines(), 0)
    real, calls = joined.store.commit, Counter[str]()

    def full_now_and_then(*arguments: Any, **how: Any) -> None:
        calls["all"] += 1
        if calls["all"] % 3:
            raise StateError("no space left")
        real(*arguments, **how)

    monkeypatch.setattr(joined.store, "commit", full_now_and_then)
    for body in PROTOBUF:
        while True:
            try:
                joined.send([body], 1)
                break
            except StateError:
                continue
    monkeypatch.setattr(joined.store, "commit", real)
    joined.restart()
    joined.finish(1)
    check_recording(joined)


def test_what_waits_counts_alone_when_spans_are_joined_no_more(joined: Joined) -> None:
    joined.write(usage_lines(), 0)
    assert outcomes(joined.log.ledger) == {}
    joined.log.close()
    options = SourceOptions("usage", (str(joined.log_file),), "beginning", DecoderOptions(), FULL_HIT)
    for _ in range(2):
        log = LogSource(options, get_format("vllm"), joined.store)
        log.poll(1)
        assert outcomes(log.ledger) == OUTCOMES
        log.close()
    assert joined.store.load("join/usage") == joined.store.load("joined/usage") == {}


REQUESTS = 12
EVENTS = st.lists(
    st.tuples(st.sampled_from(["line", "span", "poll"]), st.integers(0, REQUESTS - 1), st.integers(0, 3)),
    min_size=5,
    max_size=50,
)


def _one_span(number: int) -> bytes:
    usage = {"gen_ai.usage.prompt_tokens": 2000, "gen_ai.latency.time_to_first_token": 0.5}
    pairs = [{"key": key, "value": {"doubleValue": value}} for key, value in usage.items()]
    pairs.append({"key": "gen_ai.request.id", "value": {"stringValue": f"chatcmpl-{number}"}})
    span = {"traceId": "0" * 31 + "1", "spanId": f"{number + 1:016x}", "attributes": pairs}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


@settings(max_examples=40, deadline=None)
@given(EVENTS)
def test_a_crash_at_any_commit_loses_nothing_and_doubles_nothing(events: list[tuple[str, int, int]]) -> None:
    """The process dies at the first, second or third commit of an event; senders repeat until 200."""
    with TemporaryDirectory() as folder:
        found, now = Joined(Path(folder)), 0.0
        written, sent = set[int](), set[int]()
        for event, number, dies in events:
            now += 1
            real, left = found.store.commit, [dies or 100]

            def commit(*arguments: Any, real: Any = real, left: list[int] = left, **how: Any) -> None:
                left[0] -= 1
                if not left[0]:
                    raise ZeroDivisionError
                real(*arguments, **how)

            found.store.commit = commit  # type: ignore[method-assign]
            if event == "line" and number not in written:
                written.add(number)
                row = {"request_id": f"chatcmpl-{number}", "status": 200, "model": "m"}
                usage = {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 0}}
                with found.log_file.open("ab") as file:
                    file.write(json.dumps(row | {"usage": usage}).encode() + b"\n")
            acknowledged = event != "span"
            while True:
                try:
                    if not acknowledged:
                        sent.add(number)
                        export = read("traces", "json", _one_span(number), found.otlp.wanted)
                        found.otlp.add(found.otlp.decode("traces", export), now)
                        acknowledged = True
                    found.log.poll(now)
                    found.otlp.poll(now)
                    break
                except ZeroDivisionError:
                    found.restart()
            vars(found.store).pop("commit", None)
        found.finish(now)
        assert outcomes(found.log.ledger) == +Counter(miss=len(written), unknown=len(sent - written))
        assert sum(map(sum, seconds(found.log.ledger).values())) == len(sent)
        assert outcomes(found.otlp.ledger) == {}
        found.stop()


def test_spans_of_sglang_are_whole_records_by_themselves() -> None:
    options = SourceOptions("traces", (), "end", DecoderOptions(), FULL_HIT)
    source = OtlpSource(options, StateStore(None), lambda: None)
    for body in exports(SGLANG):
        for _ in range(2):
            source.add(source.decode("traces", read("traces", "json", body, source.wanted)), 0)
    spans = request_spans(SGLANG)
    (tally,) = source.ledger.tallies.values()
    assert sum(tally.outcomes.values()) == len(spans) == 165
    assert tally.prompt_tokens == sum(int(span["gen_ai.usage.prompt_tokens"]) for span in spans)
    assert tally.cached_tokens == sum(int(span["gen_ai.usage.cached_tokens"]) for span in spans)
    times = [
        float(s["gen_ai.latency.time_to_first_token"])
        for s in spans
        if "gen_ai.latency.time_to_first_token" in s
    ]
    assert sum(histogram.sum for histogram in tally.ttft.values()) == pytest.approx(sum(times))
    assert source.ledger.health.skipped["duplicate"] == 165
    assert next(iter(source.ledger.tallies)) == ("sglang", "tiny-llama", "sglang")


def test_a_span_and_the_log_record_written_in_it_are_one_request() -> None:
    source = OtlpSource(
        SourceOptions("traces", (), "end", DecoderOptions(), FULL_HIT), StateStore(None), lambda: None
    )
    usage = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "2000"}},
        {"key": "gen_ai.usage.cache_read.input_tokens", "value": {"intValue": 0}},
    ]
    ids = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331"}
    span = {"resourceSpans": [{"scopeSpans": [{"spans": [ids | {"attributes": usage}]}]}]}
    records = [
        ids | {"attributes": usage, "eventName": "gen_ai.client.inference.operation.details"},
        {"attributes": usage, "timeUnixNano": "1796000000000000000"},
        {"attributes": usage[:1], "timeUnixNano": "1796000000000000000"},
        {"body": {"stringValue": "an ordinary line"}},
        {"attributes": [*usage[:1], {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "-1"}}]},
    ]
    log = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    first = source.decode("traces", read("traces", "json", json.dumps(span).encode(), source.wanted))
    second = source.decode("logs", read("logs", "json", json.dumps(log).encode(), source.wanted))
    source.add(first, 0)
    source.add(second, 0)
    source.add(second, 0)
    source.poll(0)
    assert outcomes(source.ledger) == {"miss": 2}
    assert second.rejected == {"invalid": 1}
    assert source.ledger.health.failures == {"invalid": 1}
    assert source.ledger.health.skipped == {"duplicate": 1 + 3, "not_a_request": 4}
    assert '{source="traces",signal="logs"} 10.0' in source.block[c.OTLP_RECEIVED].text
