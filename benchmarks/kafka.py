"""Usage-log lines from Kafka, compared with the same lines from a file."""

import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.logs import LINES, write
from benchmarks.reading import read_all
from benchmarks.timing import Row, cpu_seconds

PARTITIONS = 16
GROUPS = count()


def kafka() -> Iterator[Row]:
    """CPU seconds of the whole process, including the client's threads and the broker."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from kafka_cluster import Cluster, cluster, comes, reader  # noqa: PLC0415
    from kvcache_exporter.state import StateStore  # noqa: PLC0415

    def consume(brokers: Cluster) -> None:
        source = reader(brokers.broker, StateStore(None), topic="bench", group=f"bench-{next(GROUPS)}")
        source.poll(0.0)
        comes("all lines", lambda: source.ledger.health.lines == LINES)
        source.close()

    with tempfile.TemporaryDirectory() as folder, cluster() as brokers:
        path = Path(folder) / "usage.jsonl"
        write(path)
        brokers.create("bench", PARTITIONS)
        for number, line in enumerate(path.read_bytes().splitlines()):
            brokers.send(line, "bench", number % PARTITIONS)
        brokers.flush()
        file = cpu_seconds(lambda: read_all(path, "openai_chat", LINES), 3) / LINES
        ours = cpu_seconds(lambda: consume(brokers), 3) / LINES
    shown = f"{1 / ours:,.0f} lines/s"
    yield Row("the same as Kafka messages", shown, f"file {1 / file:,.0f} lines/s", file / ours, ">= 0.4 x")
