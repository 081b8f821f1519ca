"""Several exporters of a group under crashes, lost answers and rebalances: each message counts exactly once.

The group's side is a model: it hands out partitions, keeps offsets with their metadata, and refuses commits
of members whose generation is over. Sessions, journals and books are the real ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kafka_cluster import LINE, TOPIC
from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.requests.books import Books, Key
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.kafka import session as session_module
from kvcache_exporter.requests.kafka.journal import Journal
from kvcache_exporter.requests.kafka.options import KafkaOptions
from kvcache_exporter.requests.kafka.session import Session
from kvcache_exporter.requests.kafka.trouble import Trouble
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.state import StateStore

PARTITIONS = 3
EXPORTERS = 3
FATES = ("taken", "taken, answer lost", "lost", "too late", "crash before", "crash after")
"""What becomes of a claim."""


SPACES = ("kafka/s", "staged/s", "ledger/s", "decoders/s", "seen/s", "spans/s", "join/s", "joined/s")


class CrashError(BaseException):
    """kill -9."""


@dataclass
class Record:
    number: int
    at: int
    text: bytes

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.text

    def __len__(self) -> int:
        return len(self.text)


@dataclass
class Group:
    """Brokers and the group's coordinator."""

    logs: list[list[Record]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    committed: dict[int, tuple[int, str]] = field(default_factory=dict)
    generation: int = 0
    members: list["Member"] = field(default_factory=list)
    owners: dict[int, "Member | None"] = field(default_factory=dict)

    def rebalance(self, shift: int) -> None:
        self.generation += 1
        count = len(self.members)
        self.owners = {
            number: self.members[(number + shift) % count] if count else None for number in range(PARTITIONS)
        }


class Member:
    """What a session sees of the group, in place of the client."""

    def __init__(self, group: Group) -> None:
        self.group, self.generation = group, -1
        self.fate = "taken"
        self.most = 100
        self.at: dict[int, int] = {}

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self._on_assign, self._on_revoke = on_assign, on_revoke

    def list_topics(self, topic: str, timeout: float) -> Any:
        return type("Found", (), {"topics": {topic: type("Topic", (), {"error": None, "partitions": {}})}})

    def consume(self, most: int, timeout: float) -> list[Record]:
        if self.generation != self.group.generation:
            self._on_revoke(self, [])
            self.at.clear()
            self.generation = self.group.generation
            own = [number for number, owner in self.group.owners.items() if owner is self]
            self._on_assign(self, [TopicPartition(TOPIC, number) for number in own])
        found: list[Record] = []
        for number, offset in self.at.items():
            left = self.most - len(found)
            found += [record for record in self.group.logs[number] if record.at >= offset][:left]
        for record in found:
            self.at[record.number] = record.at + 1
        return found

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.at = {partition.partition: partition.offset for partition in partitions}

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        answers = []
        for partition in partitions:
            offset, metadata = self.group.committed.get(partition.partition, (OFFSET_INVALID, ""))
            answers.append(TopicPartition(TOPIC, partition.partition, offset, metadata))
        return answers

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 0.0, cached: bool = False
    ) -> tuple[int, int]:
        return 0, self.group.ends[partition.partition]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        fate, self.fate = self.fate, "taken"
        if fate == "crash before":
            raise CrashError
        if fate == "lost":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if fate == "too late":
            self.group.rebalance(self.generation)
        if self.generation != self.group.generation:
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))
        for wanted in offsets:
            assert len(wanted.metadata or "") <= 4096
            self.group.committed[wanted.partition] = wanted.offset, wanted.metadata or ""
        if fate == "crash after":
            raise CrashError
        if fate == "taken, answer lost":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return offsets

    def close(self) -> None:
        self.group.members.remove(self)


class Disk(StateStore):
    """A state file in memory that knows what a power failure would leave of it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.safe: dict[Key, bytes] = {}

    def commit(
        self, puts: Mapping[Key, bytes], deletes: Iterable[Key] = (), *, durable: bool = False
    ) -> None:
        super().commit(puts, deletes)
        if durable:
            self.safe = {(space, key): value for space in SPACES for key, value in self.load(space).items()}

    def after_power_failure(self) -> "Disk":
        self.close()
        disk = Disk()
        disk.commit(self.safe, durable=True)
        return disk


class Exporter:
    """A state file, and while it runs a session."""

    def __init__(self, group: Group) -> None:
        self.group, self.store = group, Disk()
        self.member: Member | None = None
        self.published = 0
        self.start()

    def start(self) -> None:
        options = SourceOptions("s", (), "beginning", DecoderOptions(), FullHit())
        kafka = KafkaOptions(brokers=("none:1",), topics=(TOPIC,))
        self.books = Books(options, get_format("openai_chat"), self.store)
        self.journal = Journal("s", self.books, self.store)
        self.check()
        self.member = member = Member(self.group)
        with patch.object(session_module, "connect", lambda *_: member):
            self.session = Session(options, kafka, self.books, self.journal, Trouble("s"))
        self.session.join()
        self.group.members.append(member)

    def turn(self, fate: str, most: int) -> None:
        """Ends as the thread of a source does: what is raised ends the session, a crash the process."""
        assert self.member is not None
        self.member.fate, self.member.most = fate, most
        try:
            self.session.turn()
        except (KVCacheError, CrashError):
            self.end()
        else:
            self.check()

    def end(self) -> None:
        self.session.leave()
        self.member = None

    def lose_power(self) -> None:
        self.end()
        self.store = self.store.after_power_failure()
        self.published = 0

    @property
    def counted(self) -> int:
        return sum(sum(tally.outcomes.values()) for tally in self.books.ledger.tallies.values())

    @property
    def missed(self) -> dict[str, int]:
        return self.books.ledger.health.missed

    def check(self) -> None:
        """What the page would show never goes back."""
        assert self.counted >= self.published
        self.published = self.counted


class Fleet(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.group = Group()
        self.produced = self.deleted = 0
        self.exporters = [Exporter(self.group) for _ in range(EXPORTERS)]
        self.rebalance(0)

    @rule(number=st.integers(0, PARTITIONS - 1), count=st.integers(1, 9), gap=st.integers(0, 2))
    def produce(self, number: int, count: int, gap: int) -> None:
        self.group.ends[number] += gap
        for _ in range(count):
            record = Record(number, self.group.ends[number], LINE % (2000 + self.produced))
            self.group.logs[number].append(record)
            self.group.ends[number] += 1
            self.produced += 1

    @rule(number=st.integers(0, PARTITIONS - 1))
    def compact(self, number: int) -> None:
        """Delete the first message that nobody claimed and nobody may have in hand, if it is not the last."""
        claimed = self.group.committed.get(number, (0, ""))[0]
        log, in_hand = (
            self.group.logs[number],
            max((m.at.get(number, 0) for m in self.group.members), default=0),
        )
        for record in log[1:-1]:
            if record.at >= max(claimed, in_hand):
                log.remove(record)
                self.deleted += 1
                return

    @rule(shift=st.integers(0, 2))
    def rebalance(self, shift: int) -> None:
        self.group.rebalance(shift)

    @rule(who=st.integers(0, EXPORTERS - 1), fate=st.sampled_from(FATES), most=st.integers(1, 12))
    def turn(self, who: int, fate: str, most: int) -> None:
        exporter = self.exporters[who]
        if exporter.member is not None:
            exporter.turn(fate, most)

    @rule(shift=st.integers(0, 2), who=st.integers(0, EXPORTERS - 1), fate=st.sampled_from(FATES))
    def hand_over(self, shift: int, who: int, fate: str) -> None:
        """Partitions move, messages come to all, and one exporter's claim meets its fate."""
        self.rebalance(shift)
        for number in range(PARTITIONS):
            self.produce(number, 2, 0)
        for each in (who, *range(EXPORTERS), who):
            self.turn(each, fate if each == who else "taken", 4)

    @precondition(lambda self: any(e.member is None for e in self.exporters))
    @rule(shift=st.integers(0, 2))
    def start_again(self, shift: int) -> None:
        for exporter in self.exporters:
            if exporter.member is None:
                exporter.start()
        self.group.rebalance(shift)

    @rule(who=st.integers(0, EXPORTERS - 1))
    def power_fails(self, who: int) -> None:
        if self.exporters[who].member is not None:
            self.exporters[who].lose_power()

    def teardown(self) -> None:
        if not hasattr(self, "exporters"):
            return
        for _ in range(2):
            self.start_again(0)
            for exporter in self.exporters:
                exporter.turn("taken", 10_000)
                exporter.turn("taken", 10_000)
        assert sum(exporter.counted for exporter in self.exporters) == self.produced - self.deleted
        assert not any({"expired", "uncounted"} & exporter.missed.keys() for exporter in self.exporters)
        for exporter in self.exporters:
            exporter.store.close()


@pytest.fixture(autouse=True, scope="module")
def _batches_end_at_once() -> Any:
    with patch.object(session_module, "_BATCH_SECONDS", 0.0):
        yield


Fleet.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestFleet = Fleet.TestCase
