"""A Kafka cluster inside the test process (librdkafka's own, on 127.0.0.1), and sources that read from it."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from kvcache_exporter.catalogue import Metric
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.kafka.options import KafkaOptions
from kvcache_exporter.requests.kafka.source import KafkaSource
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.state import StateStore

TOPIC = "usage"
PARTITIONS = 4
LINE = (
    b'{"ts":"2026-11-29T10:00:01Z","model":"m","status":200,'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}'
)


_OFFSET_COMMIT = 8


def _library() -> ctypes.CDLL:
    """librdkafka as confluent-kafka brings it: only its C interface can stop a broker or delete messages."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class Cluster:
    """One broker. Topics come into being, with four partitions, when something is produced to them."""

    def __init__(self) -> None:
        self._library = library = _library()
        self._client = ctypes.c_void_p(library.rd_kafka_new(0, None, None, 0))
        self._mock = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, 1))
        self.broker = str(library.rd_kafka_mock_cluster_bootstraps(self._mock).decode())
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._mock, 100)
        self._producer = Producer(
            {"bootstrap.servers": self.broker, "linger.ms": 5, "log_level": 2, "acks": "all"}
        )
        self.produced = 0
        """Requests in all messages."""

    def close(self) -> None:
        del self._producer
        self._library.rd_kafka_mock_cluster_destroy(self._mock)
        self._library.rd_kafka_destroy(self._client)

    def create(self, topic: str, partitions: int) -> None:
        """A broker keeps the last 5 MiB of each partition."""
        assert self._library.rd_kafka_mock_topic_create(self._mock, topic.encode(), partitions, 1) == 0

    def go_down(self) -> None:
        assert self._library.rd_kafka_mock_broker_set_down(self._mock, 1) == 0

    def come_up(self) -> None:
        assert self._library.rd_kafka_mock_broker_set_up(self._mock, 1) == 0

    def delete_before(self, offset: int, partition: int) -> None:
        """As retention does."""
        delete = self._library.rd_kafka_mock_partition_delete_records
        assert delete(self._mock, TOPIC.encode(), partition, ctypes.c_int64(offset)) == 0

    def refuse_commits(self, *errors: int) -> None:
        """Answer the next commits of offsets with these error codes."""
        push = self._library.rd_kafka_mock_push_request_errors
        push(
            self._mock,
            ctypes.c_int16(_OFFSET_COMMIT),
            ctypes.c_size_t(len(errors)),
            *map(ctypes.c_int, errors),
        )

    def produce(self, count: int, topic: str = TOPIC, partition: int | None = None) -> None:
        """Messages of one request each, spread over the partitions."""
        for _ in range(count):
            at = self.produced % PARTITIONS if partition is None else partition
            self.send(LINE % (2000 + self.produced), topic, at)
            self.produced += 1
        self.flush()

    def send(self, value: bytes | None, topic: str = TOPIC, partition: int = 0) -> None:
        while True:
            try:
                self._producer.produce(topic, value, partition=partition)
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def flush(self) -> None:
        assert self._producer.flush(20) == 0


@contextmanager
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        yield made
    finally:
        made.close()


def reader(
    broker: str,
    store: StateStore,
    *,
    form: str = "openai_chat",
    topic: str = TOPIC,
    session_seconds: float = 1.0,
    group: str = "kvcache-exporter",
    **changes: Any,
) -> KafkaSource:
    options = replace(SourceOptions("s", (), "beginning", DecoderOptions(), FullHit()), **changes)
    kafka = KafkaOptions(brokers=(broker,), topics=(topic,), group=group, session_seconds=session_seconds)
    return KafkaSource(options, kafka, get_format(form), store)


def total(source: KafkaSource, metric: Metric, **labels: str) -> float:
    """The sum of a metric's published series with these labels."""
    text = source.block[metric].text if metric in source.block else ""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if all(sample.labels.get(name) == value for name, value in labels.items())
    )


def comes(what: str, check: Callable[[], object], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"{what} did not come within {seconds} s"
        time.sleep(0.05)
