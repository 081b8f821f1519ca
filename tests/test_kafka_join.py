"""Spans joined to a log that arrives by Kafka: each request in one record, whatever is killed and when."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kafka_cluster import TOPIC, Cluster, cluster, comes, reader, total
from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import KVCacheError, StateError
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.books import Books
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.formats.spans import Span
from kvcache_exporter.requests.joiner import JoinOptions
from kvcache_exporter.requests.kafka import inbox as inbox_module
from kvcache_exporter.requests.kafka import session as session_module
from kvcache_exporter.requests.kafka.journal import Journal
from kvcache_exporter.requests.kafka.options import KafkaOptions
from kvcache_exporter.requests.kafka.session import Session
from kvcache_exporter.requests.kafka.source import KafkaSource
from kvcache_exporter.requests.kafka.trouble import Trouble
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.otlp.receiver import Receiver
from kvcache_exporter.requests.otlp.source import OtlpSource
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.state import StateStore
from test_kafka_machine import FATES, CrashError, Disk, Group, Member, Record

LINE = (
    b'{"request_id":"chatcmpl-%d","model":"m","status":200,"usage":'
    b'{"prompt_tokens":1000,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":992}}}'
)
JOIN = JoinOptions(60.0)


def span(number: int) -> Span:
    found = {
        "gen_ai.request.id": f"chatcmpl-{number}",
        "gen_ai.usage.prompt_tokens": 1000,
        "gen_ai.latency.time_to_first_token": 0.25,
    }
    return Span(found, scope="vllm.llm_engine", span_id=f"{number:x}", trace_id="t")


def half(number: int) -> RequestRecord:
    return RequestRecord(1000, None, ttft_seconds=0.25, request_id=f"chatcmpl-{number}")


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def source_of(brokers: Cluster, store: StateStore, topic: str) -> "closing[KafkaSource]":
    found = reader(brokers.broker, store, form="vllm", topic=topic, join=JOIN)
    found.poll(0.0)
    return closing(found)


def receives(store: StateStore, partner: KafkaSource) -> OtlpSource:
    options = SourceOptions("traces", (), "beginning", DecoderOptions(), FullHit())
    return OtlpSource(options, store, lambda: partner)


def send(otlp: OtlpSource, numbers: range) -> None:
    otlp.add(otlp.decode("traces", map(span, numbers)), time.time())


def test_spans_and_messages_are_one_record_in_any_order_and_over_a_restart(
    brokers: Cluster, tmp_path: Path
) -> None:
    def produce(numbers: range) -> None:
        for number in numbers:
            brokers.send(LINE % number, "joined", number % 4)
        brokers.flush()

    produce(range(20))
    store = StateStore(tmp_path / "state.sqlite")
    with source_of(brokers, store, "joined") as source:
        comes("halves", lambda: total(source, c.JOIN_WAITING, side="usage") == 20)
        send(receives(store, source), range(40))
        comes("joined", lambda: total(source, c.JOIN_REQUESTS, result="joined") == 20)
        comes("halves", lambda: total(source, c.JOIN_WAITING, side="span") == 20)
        assert source.problems == ()
    store.close()
    store = StateStore(tmp_path / "state.sqlite")
    with source_of(brokers, store, "joined") as source:
        send(receives(store, source), range(10, 40))  # what was not acknowledged comes again
        produce(range(20, 40))
        comes("all", lambda: total(source, c.REQUESTS) >= 40)
        assert total(source, c.REQUESTS, outcome="full") == total(source, c.REQUESTS) == 40
        assert total(source, c.JOIN_REQUESTS, result="joined") == 40
        assert '_count{source="s",provider="vllm",model_name="m",outcome="full"} 40.0' in (
            source.block[c.REQUEST_TTFT].text
        )
    store.close()


def test_what_waits_for_the_whole_window_counts_also_while_no_message_comes(brokers: Cluster) -> None:
    store = StateStore(None)
    brokers.send(LINE % 1, "window")
    brokers.flush()
    join = JoinOptions(0.5)
    with closing(reader(brokers.broker, store, form="vllm", topic="window", join=join)) as source:
        source.poll(0.0)
        comes("the line", lambda: total(source, c.JOIN_REQUESTS, result="usage_only") == 1)
        source.add_spans([half(2)], 0.0)
        comes("the span", lambda: total(source, c.JOIN_REQUESTS, result="span_only") == 1)
        assert total(source, c.REQUESTS) == 2
    store.close()


def test_spans_wait_on_the_disk_while_no_broker_answers(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.sqlite")
    with cluster() as brokers:
        brokers.go_down()
        with source_of(brokers, store, "down") as source:
            send(receives(store, source), range(5))
            assert total(source, c.JOIN_WAITING) == 0
            assert len(store.load("spans/s")) == 5
        brokers.come_up()
        brokers.send(LINE % 0, "down")
        brokers.flush()
        with source_of(brokers, store, "down") as source:
            comes("one", lambda: total(source, c.JOIN_REQUESTS, result="joined") == 1)
            comes("the rest", lambda: total(source, c.JOIN_WAITING, side="span") == 4)
            assert store.load("spans/s") == {}
    store.close()


def test_senders_keep_what_there_is_no_room_for(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MOST", 5)
    store = StateStore(None)
    source = reader(brokers.broker, store, form="vllm", topic="room", join=JOIN)
    otlp = receives(store, source)
    receiver = Receiver(lambda: otlp, threading.Lock(), 1 << 20)
    statuses = []
    for number in range(7):
        body = (
            b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"spanId":"%016x","attributes":['
            b'{"key":"gen_ai.usage.prompt_tokens","value":{"intValue":"9"}}]}]}]}]}' % (number + 1)
        )
        statuses.append(receiver.answer("traces", "application/json", "", body).status)
    assert statuses == [200] * 5 + [503] * 2
    assert len(store.load("spans/s")) == 5
    source.close()
    store.close()


def test_an_exporter_that_shares_the_partitions_says_that_spans_will_not_find_their_requests(
    brokers: Cluster,
) -> None:
    brokers.create("shared", 4)
    stores = [StateStore(None), StateStore(None)]
    with source_of(brokers, stores[0], "shared") as first:
        comes("all", lambda: total(first, c.LOG_LAG_MESSAGES) == 0 and first.problems == ())
        with source_of(brokers, stores[1], "shared") as second:
            comes(
                "the warning",
                lambda: any("of 4 partitions" in p for p in (*first.problems, *second.problems)),
            )
        comes("its end", lambda: first.problems == ())
    for store in stores:
        store.close()


def test_spans_that_cannot_be_saved_are_saved_with_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(None)
    books = Books(options(), get_format("vllm"), store)
    inbox = Journal("s", books, store).inbox
    with monkeypatch.context() as patched:
        patched.setattr(store, "commit", _full)
        with pytest.raises(StateError):
            inbox.add([half(1)])
    assert inbox.take() == []
    inbox.add([])
    assert [record.request_id for record in inbox.take()] == ["chatcmpl-1"]


def _full(*_: object, **__: object) -> None:
    raise StateError("full")


def options(join: JoinOptions | None = JOIN) -> SourceOptions:
    return SourceOptions("s", (), "beginning", DecoderOptions(), FullHit(), join=join)


def test_spans_that_waited_when_joining_was_turned_off_count_alone() -> None:
    store = StateStore(None)
    Journal("s", Books(options(), get_format("vllm"), store), store).inbox.add([half(1), half(2)])
    books = Books(options(join=None), get_format("vllm"), store)
    journal = Journal("s", books, store)
    assert journal.count_spans(0.0)
    journal.stage({})
    journal.finish()
    assert counted(books) == {"unknown": 2}
    assert store.load("spans/s") == {}


def counted(books: Books) -> Counter[str]:
    found: Counter[str] = Counter()
    for tally in books.ledger.tallies.values():
        found.update(tally.outcomes)
    return found


class LateMember(Member):
    """Gets its partitions only after a while."""

    waits = 0

    def consume(self, most: int, timeout: float) -> list[Record]:
        self.waits -= 1
        return [] if self.waits >= 0 else super().consume(most, timeout)


class Joined(RuleBasedStateMachine):
    """One exporter; its claims, its process and its power fail, senders repeat what was not acknowledged."""

    @initialize()
    def begin(self) -> None:
        self.group, self.store = Group(), Disk()
        self.lines: set[int] = set()
        self.spans: set[int] = set()
        self.start()

    def start(self) -> None:
        self.books = Books(options(JoinOptions(1e9)), get_format("vllm"), self.store)
        self.journal = Journal("s", self.books, self.store)
        self.member = member = LateMember(self.group)
        kafka = KafkaOptions(brokers=("none:1",), topics=(TOPIC,))
        with patch.object(session_module, "connect", lambda *_: member):
            self.session = Session(options(), kafka, self.books, self.journal, Trouble("s"))
        self.session.join()
        self.group.members.append(member)
        self.group.rebalance(0)

    @rule(number=st.integers(0, 30), partition=st.integers(0, 2))
    def line(self, number: int, partition: int) -> None:
        """Of each request one line is logged."""
        if number not in self.lines:
            self.lines.add(number)
            at = self.group.ends[partition]
            self.group.logs[partition].append(Record(partition, at, LINE % number))
            self.group.ends[partition] += 1

    @rule(numbers=st.lists(st.integers(0, 30), max_size=4))
    def export(self, numbers: list[int]) -> None:
        """Spans may come again, when their acknowledgement was lost."""
        self.journal.inbox.add(map(half, numbers))
        self.spans.update(numbers)

    @rule(number=st.integers(0, 30), fate=st.sampled_from(FATES), waits=st.integers(0, 1))
    def claim(self, number: int, fate: str, waits: int) -> None:
        """A request with both halves meets a fate, and what follows may have to wait for its partitions."""
        self.line(number, 0)
        self.export([number])
        self.turn(fate, 100)
        self.member.waits = waits
        self.export([number + 40])
        self.turn("taken", 100)

    @rule(fate=st.sampled_from(FATES), most=st.integers(1, 12))
    def turn(self, fate: str, most: int) -> None:
        self.member.fate, self.member.most = fate, most
        try:
            self.session.turn()
        except (KVCacheError, CrashError):
            self.session.leave()
            self.start()

    @rule()
    def rebalance(self) -> None:
        self.group.rebalance(0)

    @rule()
    def power_fails(self) -> None:
        self.session.leave()
        self.store = self.store.after_power_failure()
        self.start()

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        for _ in range(3):
            self.turn("taken", 10_000)
        both, either = self.lines & self.spans, self.lines | self.spans
        expected = {"joined": len(both), "usage": len(self.lines - both), "span": len(self.spans - both)}
        samples = list(self.books.samples())
        waiting = {s.labels[1]: s.value for s in samples if s.metric is c.JOIN_WAITING}
        joined = {s.labels[1]: s.value for s in samples if s.metric is c.JOIN_REQUESTS}
        assert {"joined": joined["joined"], **waiting} == expected
        assert counted(self.books) == ({"full": len(both)} if both else {})
        self.books.expire(1e12)
        assert counted(self.books).total() == len(either)
        assert self.store.load("spans/s") == {}
        self.store.close()


@pytest.fixture(autouse=True)
def _batches_end_at_once(request: pytest.FixtureRequest) -> Any:
    with patch.object(session_module, "_BATCH_SECONDS", 0.1 if "brokers" in request.fixturenames else 0.0):
        yield


Joined.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestJoined = Joined.TestCase
