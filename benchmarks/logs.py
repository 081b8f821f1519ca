"""Usage-log lines through tail, decode, outcome and counters: against mtail on the same file and core."""

import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.timing import Row, cpu_seconds
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.state import StateStore

LINES = 200_000
PROGRAM = Path(__file__).parent / "usage.mtail"


def logs() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usage.jsonl"
        write(path)
        size = path.stat().st_size // LINES
        ours = cpu_seconds(lambda: read(path), 3) / LINES
        shown = f"{1 / ours:,.0f} lines/s"
        what = f"usage log, lines of {size} bytes"
        if shutil.which("mtail") is None:
            yield Row(what, shown, "mtail is not installed", 0.0, ">= 4 x")
            return
        reference = min(_mtail(path) for _ in range(2)) / LINES
        yield Row(what, shown, f"mtail {1 / reference:,.0f} lines/s", reference / ours, ">= 4 x")


def read(path: Path) -> None:
    options = SourceOptions("bench", (str(path),), "beginning", DecoderOptions(), FullHit())
    source = LogSource(options, get_format("openai_chat"), StateStore(None))
    now = 0.0
    while source.ledger.health.lines < LINES:
        source.poll(now)
        now += 1.0
    source.close()
    assert sum(sum(t.outcomes.values()) for t in source.ledger.tallies.values()) == LINES


def _mtail(path: Path) -> float:
    """CPU seconds of the child on one core."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["mtail", "--one_shot", "--progs", str(PROGRAM), "--logs", str(path)]
    subprocess.run(command, check=True, capture_output=True, preexec_fn=lambda: os.sched_setaffinity(0, {0}))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write(path: Path) -> None:
    chance = random.Random(1)
    with path.open("w") as file:
        for number in range(LINES):
            prompt = chance.randint(1100, 20_000)
            cached = chance.choice([0, prompt // 256 * 128, prompt - 60])
            details = {"cached_tokens": cached, "audio_tokens": 0}
            usage = {"prompt_tokens": prompt, "completion_tokens": 300, "total_tokens": prompt + 300}
            record = {
                "ts": f"{datetime.fromtimestamp(1_795_946_400 + number // 100, UTC):%Y-%m-%dT%H:%M:%S}.000Z",
                "request_id": f"req-{number:06}",
                "model": "gpt-5.1",
                "route": f"r{number % 5}",
                "status": 200,
                "stream": True,
                "ttft_ms": round(chance.uniform(20, 3000), 1),
                "latency_ms": round(chance.uniform(3000, 9000), 1),
                "usage": {**usage, "prompt_tokens_details": details},
            }
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
