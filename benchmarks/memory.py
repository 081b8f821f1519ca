"""Growth of memory: targets over a simulated day, and ten million log lines.

Each runs in a separate process: `python -m benchmarks.memory day`.
"""

import gc
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import logs
from benchmarks.fleet import memory_of
from benchmarks.replicas import page_at
from benchmarks.timing import Row
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.exposition import Page, Renderer
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.state import StateStore
from kvcache_exporter.summary.recorder import Recorder

TARGETS = 20
DAY = 24 * 3600
INTERVAL = 15
ROUNDS = 50


def memory() -> Iterator[Row]:
    for name, what, between in (
        ("day", f"{TARGETS} targets through a simulated day", "hour 2 and 24"),
        ("lines", f"{ROUNDS * logs.LINES // 10**6} million log lines in {ROUNDS} files", "10 and 50 files"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", name], check=True, capture_output=True, text=True
        )
        early, late = map(float, done.stdout.split())
        yield Row(
            f"{what}, resident after {between}", f"{early:.1f}, {late:.1f} MiB", "", 0.0, "+ 2 MiB at most"
        )


def day() -> Iterator[float]:
    """MiB after two hours, when the longest window is full and thinned, and after the whole day."""
    targets = [(TargetCollector(f"10.0.0.{n}:8000", ENGINES), Renderer()) for n in range(TARGETS)]
    recorder = Recorder(0.0)
    page = Page(10**6)
    for second in range(0, DAY, INTERVAL):
        body = page_at("vllm-0.32.0", second / 100)
        blocks = []
        for collector, renderer in targets:
            collector.page(body, float(second), 0.01)
            blocks.append(renderer.block(collector.samples))
        recorder.tick(float(second), [collector for collector, _ in targets], [], [])
        page.text(blocks)
        if second + INTERVAL in (2 * 3600, DAY):
            yield _resident()


def lines() -> Iterator[float]:
    """MiB after ten files and after all; each file replaces the one before."""
    with tempfile.TemporaryDirectory() as folder:
        path, next_one = Path(folder) / "usage.jsonl", Path(folder) / "next"
        logs.write(next_one)
        options = SourceOptions("bench", (str(path),), "beginning", DecoderOptions(), FullHit())
        source = LogSource(options, get_format("openai_chat"), StateStore(None))
        for done in range(1, ROUNDS + 1):
            with next_one.open("rb+") as file:
                file.write(b'{"ts":"%024d"' % done)  # else it would be recognised as the previous file
            shutil.copyfile(next_one, path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
            while source.ledger.health.lines < done * logs.LINES:
                source.poll(float(done))
            if done in (10, ROUNDS):
                yield _resident()
        source.close()


def _resident() -> float:
    gc.collect()
    return memory_of("self")


if __name__ == "__main__":
    RUNS: dict[str, Callable[[], Iterator[float]]] = {"day": day, "lines": lines}
    print(*RUNS[sys.argv[1]]())
