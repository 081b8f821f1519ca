"""kill -9 at random moments: every complete line is counted exactly once and no counter goes back."""

import json
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from processes import free_port, running, scrape, start_exporter, wait_until

pytestmark = pytest.mark.e2e


class Writer(threading.Thread):
    """Writes numbered usage lines, sometimes in two pieces, and rotates now and then."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.path = folder / "usage.jsonl"
        self.written = 0
        self.prompt_tokens = 0
        self.stopping = threading.Event()
        self._random = random.Random(seed)
        self._rotations = 0

    def run(self) -> None:
        file = self.path.open("ab", buffering=0)
        while not self.stopping.is_set():
            for _ in range(self._random.randint(1, 40)):
                line = self._line()
                cut = self._random.randrange(len(line)) if self._random.random() < 0.1 else len(line)
                file.write(line[:cut])
                if cut < len(line):
                    time.sleep(0.002)
                    file.write(line[cut:])
            if self._random.random() < 0.05:
                file.close()
                self._rotations += 1
                self.path.rename(self.path.with_name(f"usage.jsonl.{self._rotations}"))
                file = self.path.open("ab", buffering=0)
            time.sleep(0.01)
        file.close()

    def _line(self) -> bytes:
        self.written += 1
        prompt = self._random.randint(1100, 9000)
        self.prompt_tokens += prompt
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": prompt // 2},
        }
        record = {
            "ts": "2026-11-29T10:00:01.000Z",
            "model": "m",
            "status": 200,
            "ttft_ms": 80,
            "usage": usage,
        }
        return json.dumps(record).encode() + b"\n"


def _sum(page: dict[str, float], name: str) -> float:
    return sum(value for series, value in page.items() if series.partition("{")[0] == name)


COUNTERS = ("kvcache_requests_total", "kvcache_request_prompt_tokens_total", "kvcache_log_lines_total")


def test_every_line_once_over_random_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    crashes = request.config.getoption("--crashes")
    chance = random.Random(crashes)
    port, config = free_port(), tmp_path / "kvcache.yaml"
    config.write_text(
        f"state: {{path: {tmp_path}/state.sqlite}}\n"
        "requests:\n"
        "  - {name: app, format: openai_chat, start_at: beginning, "
        f"paths: ['{tmp_path}/usage.jsonl*']}}\n"
    )
    writer = Writer(tmp_path, seed=crashes)
    writer.start()
    seen = dict.fromkeys(COUNTERS, 0.0)

    def observe() -> bool:
        page = scrape(port)
        for name in COUNTERS:
            now = _sum(page, name)
            assert now >= seen[name], f"{name} went back from {seen[name]} to {now}"
            seen[name] = now
        return True

    for _ in range(crashes):
        process = start_exporter(config, port, tmp_path / "exporter.log")
        wait_until("the page", observe)
        end = time.monotonic() + chance.uniform(0.0, 2.5)
        while time.monotonic() < end:
            observe()
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    writer.stopping.set()
    writer.join()
    with running(start_exporter(config, port, tmp_path / "exporter.log")):
        wait_until(
            "all lines being counted",
            lambda: _sum(scrape(port), "kvcache_requests_total") >= writer.written or None,
        )
        time.sleep(2.5)
        page = scrape(port)
    assert _sum(page, "kvcache_requests_total") == writer.written
    assert _sum(page, "kvcache_log_lines_total") == writer.written
    assert _sum(page, "kvcache_request_prompt_tokens_total") == writer.prompt_tokens
    assert _sum(page, "kvcache_log_parse_failures_total") == 0
