"""Every query of every board returns data from a real Prometheus that the demo recording has filled."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from processes import free_port, query, running, start_exporter, wait_until

from kvcache_alerts.write import files as rule_files
from kvcache_dashboards.write import files as board_files
from kvcache_exporter.demo.playback import EngineServer, LogWriter, load_recording

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SPEED = 7.0
_NO_EVENTS = "no KV events are recorded"
_NO_TIERS = "the recorded engines have one tier"
_ALL_WELL = "nothing of this kind happens in the recording"
# Metrics and fragments of expressions that the recording cannot show, with the reason.
UNSEEN = {
    "kvcache_events_total": _NO_EVENTS,
    "kvcache_events_lost_total": _NO_EVENTS,
    "kvcache_resident_blocks": _NO_EVENTS,
    "kvcache_tracked_blocks_ratio": _NO_EVENTS,
    "kvcache_rewarm_delay_seconds_bucket": _NO_EVENTS,
    "target_model:kvcache_evicted_blocks:rate5m": _NO_EVENTS,
    "target_model:kvcache_stored_blocks:rate5m": _NO_EVENTS,
    "target_model:kvcache_rewarmed_blocks:rate5m": _NO_EVENTS,
    "target_model:kvcache_stored_tokens:rate5m": _NO_TIERS,
    "kvcache_loaded_tokens_total": _NO_TIERS,
    "kvcache_request_errors_total": _ALL_WELL,
    "kvcache_exporter_dropped_series_total": _ALL_WELL,
    'kvcache_target_info{hit_basis="lookup"}': "both recorded engines count prompt tokens",
}
# Panels that need more time than the recording has, with the reason.
TOO_SHORT = {
    ("Cold p99 by warm p99", "A"): "the first warm requests come in one scrape: a rate needs two",
}


class Asked(NamedTuple):
    """One query of one panel."""

    board: str
    panel: str
    ref_id: str
    expr: str


def _asked() -> Iterator[Asked]:
    for name, text in board_files({}).items():
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", []):
                expr = target["expr"].replace("$__rate_interval", "15s").replace("$__range", "60s")
                yield Asked(name, panel["title"], target["refId"], re.sub(r"\$\w+", ".*", expr))


@contextmanager
def _prometheus(folder: Path, exporter_port: int) -> Iterator[str]:
    """As `processes.prometheus`, and it evaluates the generated recording rules every second."""
    (folder / "recording.yaml").write_text(rule_files({"interval": "1s"})["recording.yaml"])
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "rule_files: [recording.yaml]\n"
        "scrape_configs:\n"
        "  - job_name: kvcache\n"
        "    honor_labels: true\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{exporter_port}']}}]\n"
    )
    url = f"http://127.0.0.1:{port}"
    data = f"--storage.tsdb.path={folder / 'data'}"
    command = ["prometheus", f"--config.file={config}", data, f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    with running(process):
        wait_until("Prometheus being ready", lambda: requests.get(f"{url}/-/ready", timeout=1).ok)
        yield url


def _play(folder: Path, stack: ExitStack) -> tuple[str, float, float]:
    """Play the whole recording; Prometheus' URL and the seconds it began and ended at."""
    engines = load_recording()
    began = time.time()
    lead = 6.0

    def clock() -> float:
        return max(0.0, time.time() - began - lead) * SPEED

    servers = [stack.enter_context(closing(EngineServer(engine, clock))) for engine in engines]
    writers = [stack.enter_context(closing(LogWriter(e, folder / e.log_name))) for e in engines]
    config, port = folder / "kvcache.yaml", free_port()
    addresses = ", ".join(f"'{server.address}'" for server in servers)
    config.write_text(
        "scrape: {interval: 500ms, timeout: 500ms, max_age: 250ms}\n"
        f"targets: [{{engine: auto, static: [{addresses}]}}]\n"
        "requests:\n"
        f"  - {{name: gateway, format: vllm, paths: ['{folder}/gateway.jsonl'], start_at: beginning}}\n"
        f"  - {{name: sglang, format: sglang_metrics_file, paths: ['{folder}/request-metrics.jsonl'],"
        " start_at: beginning, model_name: tiny-llama}\n"
    )
    stack.enter_context(running(start_exporter(config, port, folder / "exporter.log")))
    url = stack.enter_context(_prometheus(folder, port))
    while clock() < max(engine.length for engine in engines):
        for writer in writers:
            writer.write_until(clock())
        time.sleep(0.1)
    time.sleep(3)
    return url, began, time.time()


def _has_data(url: str, expr: str, begin: float, end: float) -> bool:
    parameters: dict[str, str] = {"query": expr, "start": str(begin), "end": str(end), "step": "1"}
    reply = requests.post(f"{url}/api/v1/query_range", data=parameters, timeout=20)
    answer: dict[str, Any] = json.loads(reply.text)
    assert answer["status"] == "success", (expr, answer)
    return any(value != "NaN" for series in answer["data"]["result"] for _, value in series["values"])


def _excuse(asked: Asked) -> str:
    bare = re.sub(r'\w+=~"\.\*"(, )?', "", asked.expr)
    unseen = next((reason for fragment, reason in UNSEEN.items() if fragment in bare), "")
    return unseen or TOO_SHORT.get((asked.panel, asked.ref_id), "")


def test_every_query_of_every_board_has_data(tmp_path: Path) -> None:
    """A query that stays empty fails, unless UNSEEN or TOO_SHORT say why the recording cannot show it."""
    with ExitStack() as stack:
        url, begin, end = _play(tmp_path, stack)
        empty = [asked for asked in _asked() if not _has_data(url, asked.expr, begin, end)]
        for asked in empty:
            print(f"{asked.board}: {asked.panel} {asked.ref_id}: {_excuse(asked) or 'EMPTY'}")
        unexpected = [asked for asked in empty if not _excuse(asked)]
        shown = [name for name in UNSEEN if query(url, f"last_over_time({_whole(name)}[5m])")]
    assert not unexpected
    assert not shown, "these have data now: take them off the list"


def _whole(fragment: str) -> str:
    return fragment if fragment.endswith("}") else f'{{__name__="{fragment}"}}'
