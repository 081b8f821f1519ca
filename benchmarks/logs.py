"""Throughput of usage logs from file to counters, compared with mtail on the same file."""

import json
import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.mtail import installed, mtail_seconds
from benchmarks.reading import read_all
from benchmarks.timing import Row, cpu_seconds

LINES = 200_000
PROGRAM = Path(__file__).parent / "usage.mtail"


def logs() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usage.jsonl"
        write(path)
        size = path.stat().st_size // LINES
        ours = cpu_seconds(lambda: read_all(path, "openai_chat", LINES), 5) / LINES
        shown = f"{1 / ours:,.0f} lines/s"
        what = f"usage log, lines of {size} bytes"
        if not installed():
            yield Row(what, shown, "mtail is not installed", 0.0, ">= 4 x")
            return
        reference = mtail_seconds(path, PROGRAM.read_text(), Path(folder)) / LINES
        yield Row(what, shown, f"mtail {1 / reference:,.0f} lines/s", reference / ours, ">= 4 x")


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
