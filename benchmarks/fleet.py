"""CPU and memory of the exporter while it scrapes a fleet over HTTP, compared with Prometheus."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import requests
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from benchmarks.replicas import served
from benchmarks.timing import Row

REPLICAS = 1000
INTERVAL = 15.0
WARM_UP = 45.0
SECONDS = 90.0
LISTEN = "127.0.0.1:19419"


class Used(NamedTuple):
    """Resources of a process: share of one core, MiB resident."""

    share: float
    memory: float

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % of a core, {self.memory:.0f} MiB"


def fleet() -> Iterator[Row]:
    with served(REPLICAS) as addresses, tempfile.TemporaryDirectory() as folder:
        with _exporter(Path(folder), addresses) as pid:
            used, size = _measure(pid)
            costs = [_read(pid, path) for path in ("/metrics", "/api/v1/summary", "/")]
        reference = _prometheus(Path(folder), addresses)
    what = f"{REPLICAS:,} replicas scraped and read every 15 s"
    yield Row(what, str(used), f"Prometheus {reference}", 0.0, "<= 25 %, 300 MiB")
    goals = ("< 1 s", "", "")
    names = (f"/metrics over HTTP, {size / 1e6:.1f} MB as gzip", "/api/v1/summary", "the built-in page")
    for name, (wall, cpu), goal in zip(names, costs, goals, strict=True):
        yield Row(f"  {name}", f"{wall * 1e3:.0f} ms, CPU {cpu * 1e3:.0f} ms", "", 0.0, goal)


@contextmanager
def _exporter(folder: Path, addresses: list[str]) -> Iterator[int]:
    config = folder / "kvcache.yaml"
    config.write_text(f"targets: [{{engine: auto, static: {addresses}}}]\n".replace("'", '"'))
    command = [sys.executable, "-m", "kvcache_exporter", "serve", "--config.file", str(config)]
    exporter = subprocess.Popen([*command, "--web.listen-address", LISTEN, "--log.level", "error"])
    try:
        yield exporter.pid
    finally:
        exporter.terminate()
        exporter.wait()


def _measure(pid: int) -> tuple[Used, int]:
    """Resources of the exporter when read as often as it scrapes, and the size of its compressed page."""
    time.sleep(WARM_UP)
    _check()
    before, start, size = _cpu(pid), time.monotonic(), 0
    for reading in range(1, int(SECONDS / INTERVAL) + 1):
        answer = requests.get(f"http://{LISTEN}/metrics", timeout=30, stream=True)
        answer.raise_for_status()
        size = len(answer.raw.read(decode_content=False))
        time.sleep(max(0.0, start + reading * INTERVAL - time.monotonic()))
    return Used((_cpu(pid) - before) / (time.monotonic() - start), memory_of(pid)), size


def _check() -> None:
    """Check that all replicas are up and that the page is valid in both formats."""
    page = requests.get(f"http://{LISTEN}/metrics", timeout=30).text
    up = len(re.findall(r"^kvcache_target_up{.*} 1\.0$", page, re.MULTILINE))
    assert up == REPLICAS, f"{up} of {REPLICAS} replicas answer"
    if shutil.which("promtool") is not None:
        subprocess.run(["promtool", "check", "metrics"], input=page, text=True, check=True)
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = requests.get(f"http://{LISTEN}/metrics", headers=accept, timeout=30)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(list(text_string_to_metric_families(answer.text))) > 40


def _read(pid: int, path: str) -> tuple[float, float]:
    """Seconds until the response is complete, and CPU seconds of the exporter: minimum of five."""
    walls, cpus = [], []
    for _ in range(5):
        time.sleep(1.2)  # what the page shares with others is a second old at most
        before, start = _cpu(pid), time.monotonic()
        requests.get(f"http://{LISTEN}{path}", timeout=30).raise_for_status()
        walls.append(time.monotonic() - start)
        cpus.append(_cpu(pid) - before)
    return min(walls), min(cpus)


def _prometheus(folder: Path, addresses: list[str]) -> str:
    """Resources of a Prometheus that scrapes the same pages as often."""
    if shutil.which("prometheus") is None:
        return "is not installed"
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 15s}\n"
        f"scrape_configs: [{{job_name: fleet, static_configs: [{{targets: {addresses}}}]}}]\n"
    )
    server = subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
         "--web.listen-address=127.0.0.1:19420", "--log.level=error"]
    )  # fmt: skip
    try:
        time.sleep(WARM_UP)
        before, start = _cpu(server.pid), time.monotonic()
        time.sleep(SECONDS / 2)
        return str(Used((_cpu(server.pid) - before) / (time.monotonic() - start), memory_of(server.pid)))
    finally:
        server.terminate()
        server.wait()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_of(pid: int | str) -> float:
    """MiB resident; `self` means this process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))
