"""Starts real processes for end-to-end tests: exporter, Prometheus, Alertmanager, on ports of 127.0.0.1."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import requests

T = TypeVar("T")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(what: str, check: Callable[[], T | None], seconds: float = 45.0) -> T:
    """What `check` gives once it gives something; exceptions of a server that is not up yet do not count."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = check()
        except requests.RequestException:
            found = None
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {seconds} s")
        time.sleep(0.05)


def start_exporter(config: Path, port: int, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "kvcache_exporter", "serve", "--config.file", str(config)]
    with log.open("ab") as out:
        return subprocess.Popen(
            [*command, "--web.listen-address", f"127.0.0.1:{port}"], stdout=out, stderr=subprocess.STDOUT
        )


@contextmanager
def running(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def scrape(port: int) -> dict[str, float]:
    """The exporter's page by series."""
    page = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5)
    page.raise_for_status()
    lines = [line.rpartition(" ") for line in page.text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


class Engine:
    """An engine that answers with whichever recorded page it was last given, if asked with its token."""

    def __init__(self, recording: Path, port: int = 0, token: str = "") -> None:
        self._recording = recording
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                known = not token or self.headers["Authorization"] == f"Bearer {token}"
                page = engine.page if known else b""
                self.send_response(200 if known else 401)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *args: object) -> None:
                pass

        self.page = b""
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def show(self, number: str) -> None:
        """Answer with the page of this number from now on."""
        (path,) = self._recording.glob(f"{number}_*.prom")
        self.page = path.read_bytes()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def prometheus(
    folder: Path,
    exporter_port: int,
    interval: str = "1s",
    *,
    rules: str = "",
    alertmanager_port: int = 0,
    jobs: str = "",
) -> Iterator[str]:
    """A real Prometheus that scrapes the exporter; its URL.

    `rules` is a pattern of rule files; `jobs` are further scrape configurations, as YAML.
    """
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: {interval}, scrape_timeout: 1s}}\n"
        "scrape_configs:\n"
        "  - job_name: kvcache\n"
        "    honor_labels: true\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{exporter_port}']}}]\n"
        + jobs
        + (f"rule_files: ['{rules}']\n" if rules else "")
        + (
            "alerting:\n  alertmanagers:\n"
            f"    - static_configs: [{{targets: ['127.0.0.1:{alertmanager_port}']}}]\n"
            if alertmanager_port
            else ""
        )
    )
    url = f"http://127.0.0.1:{port}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                f"--web.external-url={url}",
                "--web.enable-lifecycle",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    with running(process):
        wait_until("Prometheus being ready", lambda: requests.get(f"{url}/-/ready", timeout=1).ok)
        yield url


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[int]:
    """A real Alertmanager that sends every alert to the webhook at once; its port."""
    port = free_port()
    config = folder / "alertmanager.yml"
    config.write_text(
        "route: {receiver: test, group_wait: 100ms, group_interval: 1s, group_by: [alertname, target]}\n"
        f"receivers: [{{name: test, webhook_configs: [{{url: '{webhook}'}}]}}]\n"
    )
    with (folder / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus-alertmanager",
                f"--config.file={config}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    with running(process):
        ready = f"http://127.0.0.1:{port}/-/ready"
        wait_until("Alertmanager being ready", lambda: requests.get(ready, timeout=1).ok)
        yield port


def query(url: str, expression: str, at: float | None = None) -> list[dict[str, Any]]:
    """An instant query over the HTTP API."""
    parameters = {"query": expression} | ({"time": str(at)} if at is not None else {})
    reply = requests.get(f"{url}/api/v1/query", params=parameters, timeout=5)
    answer = json.loads(reply.text)
    assert answer["status"] == "success", answer
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


def value(url: str, expression: str, at: float | None = None) -> float | None:
    """The one value of an instant query; None if there is none."""
    result = query(url, expression, at)
    assert len(result) <= 1, result
    return float(result[0]["value"][1]) if result else None
