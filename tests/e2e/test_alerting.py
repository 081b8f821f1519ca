"""From recorded engines under hostile load to a webhook: exporter, Prometheus, Alertmanager, all real."""

import json
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
import requests
from processes import (
    Engine,
    alertmanager,
    free_port,
    prometheus,
    query,
    running,
    start_exporter,
    wait_until,
)

from kvcache_alerts.recording import TARGET_MODEL_PREEMPTIONS_RATE
from kvcache_alerts.write import files
from kvcache_exporter.catalogue import RUNNING_REQUESTS

pytestmark = pytest.mark.e2e

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "recordings"


class Webhook:
    """Keeps every alert that Alertmanager sends."""

    def __init__(self) -> None:
        alerts = self.alerts = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                alerts.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def firing(self, name: str) -> list[dict[str, Any]]:
        return [a for a in self.alerts if a["labels"]["alertname"] == name and a["status"] == "firing"]


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def _scraped(url: str, times: int, engine: Engine) -> bool:
    seen = f'count_over_time({RUNNING_REQUESTS.name}{{target="{engine.address}"}}[1m]) >= {times}'
    return bool(query(url, seen))


class Hostile(NamedTuple):
    recording: str
    quiet: str
    """Number of the page before it."""
    pages: tuple[str, ...]
    model: str


@pytest.mark.parametrize(
    "hostile",
    [
        Hostile("vllm-0.32.0", "011", ("025",), "tiny"),
        Hostile("sglang-0.5.23-c", "004", ("005", "008"), "tiny-llama"),
    ],
    ids=lambda h: h.recording,
)
def test_a_recorded_hostile_phase_reaches_the_webhook(
    request: pytest.FixtureRequest, tmp_path: Path, webhook: Webhook, hostile: Hostile
) -> None:
    engine = Engine(RECORDINGS / hostile.recording)
    request.addfinalizer(engine.close)
    overrides = {"interval": "1s", "KVCachePreemptionSpike.for": "2s", "extra_labels.team": "ml"}
    for name, text in files(overrides).items():
        (tmp_path / f"{name}.rules").write_text(text)
    engine.show(hostile.quiet)
    port, config = free_port(), tmp_path / "kvcache.yaml"
    config.write_text(
        "scrape: {interval: 1s, timeout: 1s, max_age: 500ms}\n"
        f"targets: [{{engine: auto, static: ['{engine.address}']}}]\n"
    )
    with (
        running(start_exporter(config, port, tmp_path / "exporter.log")),
        alertmanager(tmp_path, webhook.url) as manager_port,
        prometheus(tmp_path, port, rules=f"{tmp_path}/*.rules", alertmanager_port=manager_port) as url,
    ):
        scrapes = 3
        wait_until("quiet scrapes", partial(_scraped, url, scrapes, engine))
        assert not webhook.alerts
        for number in hostile.pages:
            engine.show(number)
            scrapes += 3
            wait_until(f"scrapes of page {number}", partial(_scraped, url, scrapes, engine))
        (alert,) = wait_until("the webhook being called", lambda: webhook.firing("KVCachePreemptionSpike"))
        rates = query(url, TARGET_MODEL_PREEMPTIONS_RATE.record)
        held = requests.get(f"http://127.0.0.1:{manager_port}/api/v2/alerts", timeout=5).json()
    assert float(rates[0]["value"][1]) > 0.1
    assert alert["labels"] == {
        "alertname": "KVCachePreemptionSpike",
        "target": engine.address,
        "model_name": hostile.model,
        "severity": "warning",
        "team": "ml",
    }
    text = alert["annotations"]["description"]
    assert text.startswith(f"{engine.address} ({hostile.model}) preempts 0.")
    assert "the hour before it was unknown" in text
    board = "http://localhost:3000/d/kvcache-pressure?from=now-3h&to=now"
    address = engine.address.replace(":", "%3A")
    assert (
        alert["annotations"]["dashboard_url"]
        == f"{board}&var-model_name={hostile.model}&var-target={address}"
    )
    assert [a["labels"]["alertname"] for a in held] == ["KVCachePreemptionSpike"]
    assert {a["labels"]["alertname"] for a in webhook.alerts} == {"KVCachePreemptionSpike"}
