"""kill -9 of an exporter that reads from Kafka: every message counts once, no counter goes back."""

import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from processes import free_port, running, scrape, start_exporter, wait_until

from kafka_cluster import TOPIC, Cluster, cluster

pytestmark = pytest.mark.e2e


def _sum(page: dict[str, float], name: str) -> float:
    return sum(value for series, value in page.items() if series.partition("{")[0] == name)


def _configure(folder: Path, name: str, brokers: Cluster) -> Path:
    config = folder / f"{name}.yaml"
    config.write_text(
        f"state: {{path: {folder}/{name}.sqlite}}\n"
        "requests:\n"
        "  - name: fleet\n"
        "    format: openai_chat\n"
        "    kafka:\n"
        f"      {{brokers: ['{brokers.broker}'], topic: {TOPIC}, start_at: beginning, session_timeout: 6s}}\n"
    )
    return config


def _more(observe: Callable[[str], float], before: float) -> bool:
    return observe("a") > before


def test_every_message_once_over_kills_with_another_exporter_beside(tmp_path: Path) -> None:
    chance = random.Random(7)
    stopping = threading.Event()
    seen = {"a": 0.0, "b": 0.0}
    ports = {name: free_port() for name in seen}

    def observe(name: str) -> float:
        now = _sum(scrape(ports[name]), "kvcache_requests_total")
        assert now >= seen[name], f"requests of {name} went back from {seen[name]} to {now}"
        seen[name] = now
        return now

    with cluster() as brokers:
        configs = {name: _configure(tmp_path, name, brokers) for name in seen}
        brokers.produce(100)

        def write() -> None:
            while not stopping.wait(0.02):
                brokers.produce(chance.randint(1, 40))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            with running(start_exporter(configs["b"], ports["b"], tmp_path / "b.log")):
                for _ in range(3):
                    before = dict(seen)
                    killed = start_exporter(configs["a"], ports["a"], tmp_path / "a.log")
                    wait_until("messages counted", partial(_more, observe, before["a"]), 60)
                    end = time.monotonic() + chance.uniform(0.0, 1.5)
                    while time.monotonic() < end:
                        observe("a")
                        time.sleep(0.01)
                    killed.send_signal(signal.SIGKILL)
                    killed.wait()
                with running(start_exporter(configs["a"], ports["a"], tmp_path / "a.log")):
                    wait_until("the page", lambda: observe("a") >= 0.0, 60)
                    stopping.set()
                    writer.join()
                    wait_until(
                        "all messages", lambda: observe("a") + observe("b") >= brokers.produced or None, 60
                    )
                    end = time.monotonic() + 2.0
                    while time.monotonic() < end:
                        assert observe("a") + observe("b") == brokers.produced
                        time.sleep(0.1)
                    pages = [scrape(port) for port in ports.values()]
        finally:
            stopping.set()
            writer.join()
    assert all(seen.values())
    for name in ("kvcache_log_missed_offsets_total", "kvcache_log_parse_failures_total"):
        assert sum(_sum(page, name) for page in pages) == 0
