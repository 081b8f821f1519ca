"""Cost of the plugin for each finished request, in a single API server of vLLM and with several."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from benchmarks.timing import Row, cpu_seconds
from kvcache_exporter.plugin.counters import RankCounters, families
from kvcache_exporter.plugin.finished import read_finished
from kvcache_exporter.requests.outcome import FullHit

REQUESTS = 20_000


class _Reason(IntEnum):
    STOP = 0


@dataclass
class _Finished:
    """The statistics object of vLLM 0.32."""

    num_cached_tokens: int
    finish_reason: _Reason = _Reason.STOP
    num_prompt_tokens: int = 1000
    num_generation_tokens: int = 100
    e2e_latency: float = 3.0
    decode_time: float = 2.7
    queued_time: float = 0.1
    prefill_time: float = 0.2


def plugin() -> Iterator[Row]:
    for what, process in (("one API server", ""), ("several API servers", "several")):
        with tempfile.TemporaryDirectory() as folder:
            # prometheus_client chooses its storage on import.
            own = {"PROMETHEUS_MULTIPROC_DIR": folder} if process else {}
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.plugin"],
                env={**os.environ, **own},
                check=True,
                capture_output=True,
                text=True,
            )
        yield Row(f"the plugin in vLLM, {what}", f"{float(done.stdout):.1f} us/request", "", 0.0, "< 10 us")


def _count_all() -> float:
    """Microseconds per request."""
    counters = RankCounters(families(), "tiny", "0", FullHit(), 16)
    requests = [_Finished(cached) for cached in (0, 496, 992, 0)] * (REQUESTS // 4)

    def work() -> None:
        for request in requests:
            counters.count(read_finished(request))

    return cpu_seconds(work) / REQUESTS * 1e6


if __name__ == "__main__":
    print(_count_all())
