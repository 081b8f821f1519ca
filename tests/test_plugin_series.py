"""The plugin's counters and histograms against prometheus_client's, on a page of one process and of many."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from kvcache_exporter import catalogue as c
from kvcache_exporter.plugin import series
from kvcache_exporter.plugin.counters import RankCounters, families
from kvcache_exporter.plugin.finished import Finished
from kvcache_exporter.plugin.series import Family
from kvcache_exporter.requests.outcome import FullHit

REQUEST = Finished(640, 320, 4, 0.5, 2.0, "")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process among several that share a page."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    series._file.cache_clear()
    yield tmp_path
    series._file.cache_clear()


def lines(page: bytes) -> list[str]:
    return sorted(line for line in page.decode().splitlines() if "_created" not in line)


def shared_page(folder: Path) -> bytes:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))
    return generate_latest(registry)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100) | st.sampled_from(c.SECONDS_BUCKETS))),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10**6))),
)
def test_the_page_is_the_one_of_prometheus_clients_own(
    observed: list[tuple[str, float]], added: list[tuple[str, int]]
) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    seconds = Family(c.REQUEST_TTFT, "engine", edges=c.SECONDS_BUCKETS)
    tokens = Family(c.REQUEST_PROMPT_TOKENS, "engine")
    ttft, prompt = c.REQUEST_TTFT, c.REQUEST_PROMPT_TOKENS
    histogram = Histogram(ttft.name, ttft.help, ["engine"], registry=theirs, buckets=c.SECONDS_BUCKETS)
    counter = Counter(prompt.family, prompt.help, ["engine"], registry=theirs)
    for engine, value in observed:
        seconds.series(engine).observe(value)
        histogram.labels(engine).observe(value)
    for engine, amount in added:
        tokens.series(engine).inc(amount)
        counter.labels(engine).inc(amount)

    class Ours:
        def collect(self) -> list[object]:
            return [seconds.read(), tokens.read()]

    ours.register(Ours())  # type: ignore[arg-type]  # what prometheus_client's documentation does
    assert lines(generate_latest(ours)) == lines(generate_latest(theirs))


def test_a_shared_page_says_the_same_as_that_of_one_process(shared: Path) -> None:
    registry = CollectorRegistry()
    counters = RankCounters(families(registry), "tiny", "0", FullHit(), 16)
    for request in (REQUEST, REQUEST, REQUEST._replace(cached_tokens=0), REQUEST._replace(error="aborted")):
        counters.count(request)
    alone = [line for line in lines(generate_latest(registry)) if not line.startswith("#")]
    together = [line for line in lines(shared_page(shared)) if not line.startswith("#")]
    assert together == alone
    assert 'kvcache_requests_total{engine="0",model_name="tiny",outcome="partial"} 2.0' in together
    assert len(together) > 100


def test_a_process_with_the_id_of_an_earlier_one_adds_to_its_numbers(shared: Path) -> None:
    for _ in range(2):
        RankCounters(families(CollectorRegistry()), "tiny", "0", FullHit(), 16).count(REQUEST)
        series._file.cache_clear()
    assert b'_total{engine="0",model_name="tiny",outcome="partial"} 2.0' in shared_page(shared)


def test_prometheus_clients_own_numbers_of_the_same_process_stay_as_they_are(tmp_path: Path) -> None:
    """It has a file of that kind for the process, too."""
    code = """
from prometheus_client import CollectorRegistry, Counter
from kvcache_exporter.plugin.counters import RankCounters, families
from kvcache_exporter.plugin.finished import Finished
from kvcache_exporter.requests.outcome import FullHit
registry = CollectorRegistry()
own = Counter("vllm:request_success", "of vLLM", ["reason"], registry=registry)
counters = RankCounters(families(registry), "tiny", "0", FullHit(), 16)
for number in range(100):
    own.labels(str(number)).inc()
    counters.count(Finished(640, 320, 4, 0.5, 2.0, ""))
"""
    run(code, tmp_path)
    page = shared_page(tmp_path)
    assert all(b'vllm:request_success_total{reason="%d"} 1.0' % number in page for number in range(100))
    assert b'_requests_total{engine="0",model_name="tiny",outcome="partial"} 100.0' in page


def test_a_forked_process_counts_its_own_requests_only(tmp_path: Path) -> None:
    code = """
import os
from kvcache_exporter.plugin.counters import RankCounters, families
from kvcache_exporter.plugin.finished import Finished
from kvcache_exporter.requests.outcome import FullHit
counters = RankCounters(families(), "tiny", "0", FullHit(), 16)
request = Finished(640, 320, 4, 0.5, 2.0, "")
counters.count(request)
child = os.fork()
counters.count(request)
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
counters.count(request)
"""
    run(code, tmp_path)
    assert b'_requests_total{engine="0",model_name="tiny",outcome="partial"} 4.0' in shared_page(tmp_path)
    assert len(list(tmp_path.glob("counter_*.db"))) == 2


def run(code: str, folder: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_a_scrape_while_new_series_are_made_fails_never() -> None:
    family, stop = Family(c.REQUEST_ERRORS, "reason"), threading.Event()

    def scrape() -> None:
        while not stop.is_set():
            family.read()

    failures: list[object] = []
    before = threading.excepthook
    threading.excepthook = failures.append
    try:
        thread = threading.Thread(target=scrape)
        thread.start()
        for number in range(20_000):
            family.series(str(number % 1000 + number // 1000)).inc()
        stop.set()
        thread.join()
    finally:
        threading.excepthook = before
    assert failures == []
    assert sum(sample.value for sample in family.read().samples) == 20_000.0
