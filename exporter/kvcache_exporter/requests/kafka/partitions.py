"""The partitions assigned to this exporter: the next offset of each, and the claims on it."""

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import OFFSET_INVALID, Consumer, Message, TopicPartition

from kvcache_exporter.requests.books import Books
from kvcache_exporter.requests.kafka.journal import Journal
from kvcache_exporter.requests.kafka.messages import lines_of
from kvcache_exporter.requests.kafka.offsets import Claims, Standing, resume
from kvcache_exporter.requests.kafka.reasons import failed
from kvcache_exporter.requests.options import SourceOptions

ANSWER_SECONDS = 4.0
"""Timeout for a broker's answer."""


class Partitions:
    """Partitions are named `topic/number`, as in the state file. Methods raise what the client raises."""

    def __init__(self, options: SourceOptions, books: Books, journal: Journal, consumer: Consumer) -> None:
        self._options, self._books, self._journal, self._consumer = options, books, journal, consumer
        self._next: dict[str, int] = {}
        """Offset of the next message of each assigned partition."""
        self._claims: dict[str, Claims] = {}
        self._flushed = False

    def lose(self) -> None:
        self._next.clear()

    def take(self, given: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Own these partitions and no others; returns them with the offsets at which to resume."""
        ours = {name_of(partition) for partition in given}
        # Drop what was counted but not staged, so that nothing is counted twice.
        self._journal.load()
        self._flushed = False
        staged = self._journal.staged
        committed = self._committed(ours | (staged.ends.keys() if staged else set()))
        if staged is not None:
            owner = self._journal.owner
            claimed = any(committed[name][1].of(owner) == end for name, end in staged.ends.items())
            self._journal.resolve(claimed=claimed or not staged.ends)
        self._claims = {name: committed[name][1] for name in ours}
        self._next = {name: self._begin(name, committed[name][0]) for name in sorted(ours)}
        self._flush(self._books.open_logs - ours)
        return [partition_of(name, offset) for name, offset in self._next.items()]

    def count(self, name: str, messages: Iterable[Message]) -> None:
        """Count messages of one partition, in order; ignores a partition that is not assigned."""
        if name not in self._next:
            return
        lines: list[bytes] = []
        missed, following = 0, self._next[name]
        for message in messages:
            offset = message.offset()
            if offset is not None and offset >= following:
                missed += offset - following
                following = offset + 1
                lines += lines_of(message.value())
        self._next[name] = following
        self._books.ledger.health.miss("gap", missed)
        self._count_lines(name, lines)

    def news(self) -> dict[str, int] | None:
        """The offsets after what was counted but not claimed, by partition; None if nothing is new."""
        owner, known = self._journal.owner, self._journal.positions
        ends = {
            name: end
            for name, end in self._next.items()
            if known.get(name) != end or self._claims[name].of(owner) != end
        }
        return ends if ends or self._flushed else None

    def claims(self, ends: Mapping[str, int]) -> list[TopicPartition]:
        """What to commit to the group to claim everything before `ends`."""
        owner = self._journal.owner
        return [
            partition_of(name, end, self._claims[name].add(owner, end).encode()) for name, end in ends.items()
        ]

    def claimed(self, ends: Mapping[str, int]) -> None:
        """Note that the group accepted these claims, and that they are in the state file."""
        for name, end in ends.items():
            self._claims[name] = self._claims[name].add(self._journal.owner, end)
        self._flushed = False

    def lag(self) -> int:
        """Messages that are not counted yet, as far as the client knows."""
        lag = 0
        for name, following in self._next.items():
            edges = self._consumer.get_watermark_offsets(partition_of(name), cached=True)
            lag += max(0, edges[1] - following) if edges else 0
        return lag

    def _committed(self, names: set[str]) -> dict[str, tuple[int | None, Claims]]:
        asked = [partition_of(name) for name in sorted(names)]
        answers = self._consumer.committed(asked, ANSWER_SECONDS) if asked else []
        for answer in answers:
            if answer.error is not None:
                raise failed(answer.error, "committed offsets cannot be read")
        return {
            name_of(answer): (answer.offset if answer.offset >= 0 else None, Claims.decode(answer.metadata))
            for answer in answers
        }

    def _begin(self, name: str, committed: int | None) -> int:
        """Where to resume; counts messages that can no longer be read."""
        low, high = self._consumer.get_watermark_offsets(partition_of(name), timeout=ANSWER_SECONDS)
        topic, _, number = name.rpartition("/")
        old = int(number) < self._journal.partitions.get(topic, 0)
        own = self._journal.positions.get(name)
        standing = Standing(
            own=own,
            committed=committed,
            claims=self._claims[name],
            low=low,
            high=high,
            fresh=high if old and self._options.start_at == "end" else low,
        )
        found = resume(standing, self._journal.owner)
        self._books.ledger.health.miss("uncounted", found.uncounted)
        self._books.ledger.health.miss("expired", found.expired)
        if own is not None and own != found.next:
            self._flush({name})
        return found.next

    def _flush(self, names: set[str]) -> None:
        """Finish these logs, whose next lines are read elsewhere: count incomplete requests as they are."""
        for name in names:
            self._books.add(name, [], time.time(), finished=True)
        self._books.forget(names)
        self._flushed = self._flushed or bool(names)

    def _count_lines(self, name: str, lines: list[bytes]) -> None:
        kept = [line for line in lines if len(line) <= self._options.max_line_bytes]
        self._books.ledger.health.lines += len(lines)
        self._books.ledger.fail("too_long", len(lines) - len(kept))
        self._books.add(name, kept, time.time())


def name_of(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"


def partition_of(name: str, offset: int = OFFSET_INVALID, metadata: str = "") -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number), offset, metadata)
