"""One membership in a consumer group, in which messages are counted in claimed batches."""

import time
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kvcache_exporter.requests.books import Books
from kvcache_exporter.requests.kafka.client import connect, stamps
from kvcache_exporter.requests.kafka.errors import RejoinError
from kvcache_exporter.requests.kafka.journal import Journal
from kvcache_exporter.requests.kafka.options import KafkaOptions
from kvcache_exporter.requests.kafka.partitions import ANSWER_SECONDS, Partitions
from kvcache_exporter.requests.kafka.reasons import failed, reason_of
from kvcache_exporter.requests.kafka.trouble import Trouble
from kvcache_exporter.requests.options import SourceOptions

_MESSAGES = 1000
_WAIT_SECONDS = 0.1
_BATCH_SECONDS = 1.0
_BATCH_BYTES = 16 << 20


class Session:
    """For one thread. After any exception, messages that were counted but not claimed must be forgotten."""

    def __init__(
        self, options: SourceOptions, kafka: KafkaOptions, books: Books, journal: Journal, trouble: Trouble
    ) -> None:
        """Raises KafkaFailedError if the client cannot start."""
        self._kafka, self._journal, self._trouble = kafka, journal, trouble
        self._joins = options.join is not None
        self._given: int | None = None
        self._stamps = stamps(kafka.security)
        self._consumer = connect(kafka, trouble.on_error, trouble.on_statistics)
        self._partitions = Partitions(options, books, journal, self._consumer)
        self._waiting: list[Message] = []
        self._size = 0
        self._due = 0.0
        self._rejoin_by = float("inf")

    def join(self) -> None:
        """Raises KafkaFailedError if the brokers do not answer."""
        self._look_at_topics()
        self._consumer.subscribe(
            list(self._kafka.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def leave(self) -> None:
        self._consumer.close()

    def turn(self) -> bool:
        """Receive messages; True if that completed a batch, after a second or 16 MiB.

        Raises KafkaFailedError, RejoinError or StateError, which end the session.
        """
        try:
            received = self._consumer.consume(_MESSAGES, _WAIT_SECONDS)
        except KafkaException as failure:
            raise failed(failure.args[0], "messages cannot be read") from None
        for message in received:
            if (error := message.error()) is None:
                self._waiting.append(message)
                self._size += len(message)
            else:
                self._failed(message, error)
        now = time.monotonic()
        if now < self._due and self._size < _BATCH_BYTES:
            return False
        self._due = now + _BATCH_SECONDS
        self._check(now)
        self._look_at_share()
        self._settle()
        return True

    def lag(self) -> int:
        """Messages in our partitions that are not counted yet."""
        return self._partitions.lag()

    def _failed(self, message: Message, error: KafkaError) -> None:
        topic = message.topic()
        if error.name() == "_AUTO_OFFSET_RESET":
            raise RejoinError(f"topic {topic}: {error.str()}; rejoining to see what is left of it")
        if topic:
            self._trouble.on_topic(topic, error)
        else:
            self._trouble.on_error(error)

    def _check(self, now: float) -> None:
        if stamps(self._kafka.security) != self._stamps:
            raise RejoinError("credentials have changed; reconnecting")
        if now > self._rejoin_by:
            raise RejoinError("no partitions since the group refused a claim; rejoining")

    def _settle(self) -> None:
        """Count the batch, claim it, and commit it; drop it if the group refuses the claim."""
        by_partition: dict[str, list[Message]] = defaultdict(list)
        for message in self._waiting:
            by_partition[f"{message.topic()}/{message.partition()}"].append(message)
        self._waiting.clear()
        self._size = 0
        for name, messages in by_partition.items():
            self._partitions.count(name, messages)
        more = self._journal.count_spans(time.time())
        ends = self._partitions.news()
        if ends is None and not more:
            return
        ends = ends or {}
        self._journal.stage(ends)
        if not ends or self._claim(self._partitions.claims(ends)):
            self._journal.finish()
            self._partitions.claimed(ends)

    def _claim(self, offsets: list[TopicPartition]) -> bool:
        """Whether the group accepted the claims; raises if unknown, and the next session finds out."""
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            if reason_of(error) != "fenced":
                raise failed(error, "messages cannot be claimed") from None
            self._fence(error)
            return False
        refused = [answer.error for answer in answers if answer.error is not None]
        if len(refused) == len(answers):
            raise failed(refused[0], "messages cannot be claimed")
        for error in refused:
            # A single partition fails only if it or the right to it is gone, so no other exporter claims it.
            self._trouble.on_error(error)
        return True

    def _fence(self, error: KafkaError) -> None:
        """The group is rebalancing: drop what was counted and wait for the next assignment."""
        self._trouble.on_fenced(error)
        self._journal.load()
        self._drop()
        self._rejoin_by = time.monotonic() + 2 * self._kafka.session_seconds

    def _drop(self) -> None:
        self._partitions.lose()
        self._waiting.clear()
        self._size = 0

    def _look_at_topics(self) -> None:
        """Note how many partitions there are: those added later are read from their beginning."""
        found: dict[str, int] = {}
        for topic in self._kafka.topics:
            if topic in self._journal.partitions:
                continue
            error, count = self._about(topic)
            if error is not None and reason_of(error) != "topic":
                raise failed(error, f"topic {topic} cannot be read")
            found[topic] = count
        if found:
            self._journal.note_partitions(found)

    def _look_at_share(self) -> None:
        """Not in the assignment callback: listing topics there makes the client abort the process."""
        if self._given is not None:
            there_are = sum(self._about(topic)[1] for topic in self._kafka.topics)
            self._trouble.on_share(self._given, there_are)
            self._given = None

    def _about(self, topic: str) -> tuple[KafkaError | None, int]:
        """The problem with a topic, and its number of partitions."""
        try:
            about = self._consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        except KafkaException as failure:
            raise failed(failure.args[0], "topics cannot be listed") from None
        return about.error, len(about.partitions)

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._drop()

    def _on_assign(self, _consumer: Consumer, given: list[TopicPartition]) -> None:
        self._drop()
        try:
            self._consumer.assign(self._partitions.take(given))
        except KafkaException as failure:
            raise failed(failure.args[0], "partitions cannot be taken over") from None
        self._rejoin_by = float("inf")
        self._trouble.on_assigned()
        self._given = len(given) if self._joins else None
