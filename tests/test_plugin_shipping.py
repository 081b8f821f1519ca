"""How the plugin gets into an engine: installed, as a folder, as one file; several processes."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vllm_shapes as shapes
from kvcache_exporter.cli import main
from kvcache_exporter.commands.plugin import FACTORY, GROUP, MODULES, NAME

TESTS = Path(__file__).parent

# As vLLM loads plugins of this group; then one request of 640 tokens is counted, and the page printed.
_ENGINE = """
import json, sys
from importlib.metadata import entry_points
sys.path.append(sys.argv[1])
import vllm_shapes as shapes
shapes.install(shapes.NEWEST)
before = set(sys.modules)
(point,) = entry_points(group="vllm.stat_logger_plugins")
logger = point.load()(shapes.config("tiny"), 0)
made = shapes.finished_class(shapes.NEWEST)
reason = shapes.finish_reasons(shapes.NEWEST).STOP
request = made(reason, num_prompt_tokens=640, num_cached_tokens=320, num_generation_tokens=4, e2e_latency=2.0,
               decode_time=0.5)
logger.record(None, shapes.iteration(request))
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest, multiprocess
import os
registry = REGISTRY
if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
import kvcache_exporter
print(json.dumps({
    "name": point.name,
    "from": kvcache_exporter.__file__,
    "modules": sorted(set(sys.modules) - before),
    "page": generate_latest(registry).decode(),
}))
"""
_LIBRARIES = frozenset({"kvcache_exporter", "prometheus_client"})


def engine_with(path: Path | None, **environment: str) -> dict[str, Any]:
    """What a process that loads the plugin as vLLM does has to say."""
    settings = {**os.environ, **({"PYTHONPATH": str(path)} if path else {}), **environment}
    done = subprocess.run(
        [sys.executable, "-c", _ENGINE, str(TESTS)], env=settings, check=True, capture_output=True, text=True
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def values(page: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in page.splitlines() if line.startswith("kvcache_")]
    return {series: float(value) for series, _, value in lines}


_PARTIAL = 'kvcache_requests_total{engine="0",model_name="tiny",outcome="partial"}'


@pytest.mark.parametrize("name", ["plugin", "plugin.zip"])
def test_what_is_written_loads_from_there_and_needs_nothing_else(tmp_path: Path, name: str) -> None:
    assert main(["plugin", "--out", str(tmp_path / name)]) == 0
    said = engine_with(tmp_path / name)
    assert said["name"] == NAME
    assert said["from"].startswith(str(tmp_path / name))
    assert values(said["page"])[_PARTIAL] == 1.0
    outside = {module.partition(".")[0] for module in said["modules"]} - _LIBRARIES
    assert {module for module in outside if module not in sys.stdlib_module_names} == set()
    ours = {m.replace(".", "/") for m in said["modules"] if m.startswith("kvcache_exporter")}
    assert {f"kvcache_exporter/{m.removesuffix('.py').removesuffix('/__init__')}" for m in MODULES} - {
        "kvcache_exporter/__init__"
    } == ours - {"kvcache_exporter"}


def test_the_same_plugin_is_the_same_file(tmp_path: Path) -> None:
    """So a ConfigMap made of it changes only with the plugin."""
    for name in ("a.zip", "b.zip"):
        main(["plugin", "--out", str(tmp_path / name)])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert (tmp_path / "a.zip").stat().st_size < 1 << 20


def test_the_installed_distribution_offers_the_same_entry_point() -> None:
    (point,) = importlib.metadata.entry_points(group=GROUP)
    assert (point.name, point.value) == (NAME, FACTORY)
    assert values(engine_with(None)["page"])[_PARTIAL] == 1.0


def test_api_server_processes_add_up_on_one_page(tmp_path: Path) -> None:
    """vLLM with several API servers: each counts its own requests into files that one page is made of."""
    for servers in (1.0, 2.0, 3.0):
        page = values(engine_with(None, PROMETHEUS_MULTIPROC_DIR=str(tmp_path))["page"])
        assert page[_PARTIAL] == servers
        ttft = "kvcache_request_time_to_first_token_seconds"
        assert page[f'{ttft}_count{{engine="0",model_name="tiny",outcome="partial"}}'] == servers
        assert page[f'{ttft}_sum{{engine="0",model_name="tiny",outcome="partial"}}'] == 1.5 * servers


def test_shapes_of_every_supported_age_are_recorded() -> None:
    assert shapes.VERSIONS == ("0.11.2", "0.13.0", "0.16.0", "0.20.0", "0.25.1", "0.32.0")
