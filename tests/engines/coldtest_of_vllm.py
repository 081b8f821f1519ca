"""`coldtest` of real vLLM on CPU, restarted by its own command, against vLLM's counters: `make test-engines`.

Not collected by an ordinary run of pytest: its name says so. Results and vLLM's log stay in --basetemp.
"""

import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from processes import free_port, wait_until
from prometheus_client.parser import text_string_to_metric_families

from engines.server import BLOCK, ENVIRONMENT, log_lines, vllm_command
from kvcache_exporter.cli import main

VERSION = "0.32.0"
REQUESTS = 100
LATER = 0.25
"""Seconds by which the client may see a first token later than the engine: two cores do the work of both."""

pytestmark = pytest.mark.timeout(1200)

_RESTART = """
if [ -s {folder}/pid ]; then kill "$(cat {folder}/pid)"; fi
while curl --silent --output /dev/null {url}/health; do sleep 0.2; done
{start} >> {folder}/vllm.log 2>&1 &
echo $! > {folder}/pid
"""


@contextmanager
def restartable(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of a server that is not running yet, and the command that starts it anew."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    start = shlex.join(["env", *settings, *vllm_command(VERSION, folder, port)])
    script = folder / "restart.sh"
    script.write_text(_RESTART.format(folder=shlex.quote(str(folder)), url=url, start=start))
    try:
        yield url, f"bash {shlex.quote(str(script))}"
    finally:
        os.kill(int((folder / "pid").read_text()), signal.SIGTERM)


def counters(url: str) -> dict[str, float]:
    text = requests.get(f"{url}/metrics", timeout=10).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name + sample.labels.get("le", "")
            found[key] = found.get(key, 0.0) + sample.value
    return found


def test_the_cold_run_is_what_the_restarted_engine_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with restartable(tmp_path) as (url, command):
        assert os.system(command) == 0
        wait_until("vLLM serving", lambda: requests.get(f"{url}/health", timeout=5).ok, 300)
        load = ("--shared-prefix", "1000", "--requests", str(REQUESTS), "--concurrency", "4", "--seed", "7")
        judged = ("--granule", str(BLOCK), "--objective-ttft-p99", "1m", "--max-ratio", "1000")
        ready = ("--restart-command", command, "--ready-timeout", "5m")
        code = main(["coldtest", "--url", url, "--yes", "--json", *load, *judged, *ready])
        out = capfd.readouterr().out
        (tmp_path / "result.json").write_text(out)
        found = json.loads(out)
        engine = counters(url)
    assert code == 0, found
    warm, cold = found["phases"]["warm"], found["phases"]["cold"]
    for phase in (warm, cold):
        assert phase["requests"] == REQUESTS
        assert phase["errors"] == {}
        assert phase["outcomes"].keys() >= {"full", "partial", "miss"}
        assert "unknown" not in phase["outcomes"]
    assert warm["prompt_tokens"] == cold["prompt_tokens"] == engine["vllm:prompt_tokens_total"]
    assert cold["cached_tokens"] == engine["vllm:prompt_tokens_cached_total"]
    assert cold["cached_tokens"] < warm["cached_tokens"]
    assert cold["output_tokens"] == engine["vllm:generation_tokens_total"]
    assert found["engine"] == "vllm"
    assert found["recovery"]["requests"] >= 20
    assert len(log_lines(tmp_path, "Application startup complete")) == 2
    median_agrees(engine, cold["ttft_all"]["p50"])
    print(json.dumps({name: found["phases"][name]["ttft"] for name in ("warm", "cold")}))


def median_agrees(engine: dict[str, float], client: float) -> None:
    """The client's median lies in the bucket of the engine's own, or as much later as HTTP may take."""
    name = "vllm:time_to_first_token_seconds_bucket"
    edges = sorted(float(key.removeprefix(name)) for key in engine if key.startswith(name))
    total = engine["vllm:time_to_first_token_seconds_count"]
    counts = {float(key.removeprefix(name)): value for key, value in engine.items() if key.startswith(name)}
    place = next(place for place, edge in enumerate(edges) if counts[edge] >= total / 2)
    low = edges[place - 1] if place else 0.0
    print(f"TTFT p50: engine {low:g} to {edges[place]:g} s, client {client:.3f} s")
    assert total == REQUESTS
    assert low <= client <= edges[place] + LATER
