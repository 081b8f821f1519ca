"""The engine's version: asked beside the page, seldom, and never at the page's cost."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from processes import wait_until

from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.cli import main
from kvcache_exporter.config import HttpSettings
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.scrape import version as version_module
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.version import EngineVersion, version_url

ENGINE_PAGES = Path(__file__).parent / "fixtures" / "engines"
PAGE = (ENGINE_PAGES / "vllm-0.32.0" / "page.prom").read_bytes()
BY_NAME = {engine.name: engine for engine in ENGINES}


class Server:
    """Answers every path with `body`, after `delay` seconds, and remembers what it was asked."""

    def __init__(self) -> None:
        self.body, self.status, self.kind, self.delay = b"", 200, "application/json", 0.0
        self.pages: dict[str, bytes] = {}
        """Metrics pages by path."""
        self.asked: list[tuple[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, self.headers.get("Authorization", "")))
                time.sleep(server.delay)
                page = server.pages.get(self.path)
                body = server.body if page is None else page
                self.send_response(server.status)
                self.send_header("Content-Type", server.kind if page is None else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def says(self, version: object) -> None:
        self.body = json.dumps({"version": version}).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as made:
        yield made


def shown(collector: TargetCollector) -> str:
    place = c.TARGET_INFO.labels.index("engine_version")
    return next(s.labels[place] for s in collector.samples if s.metric is c.TARGET_INFO)


def started_at(seconds: int) -> bytes:
    lines = [line for line in PAGE.splitlines() if not line.startswith(b"process_start_time_seconds ")]
    return b"\n".join([*lines, b"process_start_time_seconds %d" % seconds, b""])


def test_the_version_is_on_the_first_page_and_asked_again_only_after_a_restart(
    server: Server, tmp_path: Path
) -> None:
    """With the credentials of the page."""
    token = tmp_path / "token"
    token.write_text("secret")
    http = HttpSettings(bearer_token_file=str(token))
    collector = TargetCollector("t", ENGINES, version=EngineVersion(server.url, http).of)
    server.says("0.31.0")
    for second in range(3):
        collector.page(started_at(1_795_950_000), 1_795_950_100.0 + second)
        assert shown(collector) == "0.31.0"
    server.says("0.32.0")
    for second in range(3):
        collector.page(started_at(1_795_950_200), 1_795_950_300.0 + second)
        assert shown(collector) == "0.32.0"
    assert server.asked == [("/version", "Bearer secret")] * 2


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"not found", 404, "text/plain"),
        (b'{"version": "1"}', 401, "application/json"),
        (b"<html>", 200, "text/html"),
        (b"# HELP", 200, "text/plain"),
        (b'{"version": 3}', 200, "application/json"),
        (b'{"version": "sk-secret"}', 200, "application/json"),
        (b'{"version": "0.' + b"1" * 100 + b'"}', 200, "application/json"),
        (b'{"version": "0.1\\n"}', 200, "application/json"),
        (b'{"version": "0.1\xff"}', 200, "application/json"),
        (b"[" * 60_000, 200, "application/json"),
        (b" " * 100_000 + b'{"version": "0.1"}', 200, "application/json"),
    ],
)
def test_an_answer_that_is_no_version_is_none_and_not_asked_for_again(
    server: Server, body: bytes, status: int, kind: str
) -> None:
    server.body, server.status, server.kind = body, status, kind
    version = EngineVersion(server.url)
    assert [version.of(BY_NAME["vllm"], 0) for _ in range(5)] == [""] * 5
    assert len(server.asked) == 1


def test_a_version_that_does_not_come_delays_three_pages_a_little(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_module, "_SECONDS", 0.1)
    monkeypatch.setattr(version_module, "_PAUSE_SECONDS", 0.0)
    server.delay = 5.0
    version = EngineVersion(server.url)
    started = time.monotonic()
    assert [version.of(BY_NAME["vllm"], 0) for _ in range(20)] == [""] * 20
    assert time.monotonic() - started < 3.0
    assert len(server.asked) == 3


def test_between_tries_there_is_a_pause(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_module, "_SECONDS", 0.1)
    server.delay = 5.0
    version = EngineVersion(server.url)
    assert [version.of(BY_NAME["vllm"], 0) for _ in range(20)] == [""] * 20
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("url", "engine", "expected"),
    [
        ("http://a:8000/metrics", "vllm", "http://a:8000/version"),
        ("https://gateway/llm/a/metrics?x=1", "vllm", "https://gateway/llm/a/version"),
        ("http://a:8000/prometheus/metrics", "trtllm", "http://a:8000/version"),
        ("http://a:8000/metrics", "trtllm", None),
        ("http://a:8080/stats/prometheus", "vllm", None),
        ("http://a:30000/metrics", "sglang", None),
        ("http://a:9090/metrics", "lmcache", None),
    ],
)
def test_it_is_asked_where_the_engine_has_it_for_nothing(url: str, engine: str, expected: str | None) -> None:
    """SGLang's answer holds all its arguments, the API key included, and makes its scheduler answer, too."""
    assert version_url(url, BY_NAME[engine]) == expected


def test_routers_are_not_asked_for_a_version() -> None:
    asked = {engine.name for engine in ENGINES if engine.version_path}
    assert asked == {"vllm", "trtllm"}


@pytest.mark.parametrize("ask", [True, False])
def test_the_configuration_says_whether_to_ask(server: Server, tmp_path: Path, ask: bool) -> None:
    file = tmp_path / "kvcache.yaml"
    address = server.url.split("/")[2]
    file.write_text(f'targets: [{{engine: vllm, static: ["{address}"], ask_version: {str(ask).lower()}}}]\n')
    server.body, server.kind = PAGE, "text/plain"
    app = App(file)
    app.start()
    wait_until("a page", lambda: bool(app.scheduler.jobs[address].block))
    app.stop()
    assert ("/version" in {path for path, _ in server.asked}) == ask


def test_inspect_of_a_url_shows_it_and_of_a_file_asks_nobody(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server.pages = {"/metrics": PAGE}
    server.says("0.32.0")
    assert main(["inspect", server.url]) == 0
    assert 'engine="vllm",engine_version="0.32.0"' in capsys.readouterr().out
    (tmp_path / "page.prom").write_bytes(PAGE)
    asked = len(server.asked)
    assert main(["inspect", str(tmp_path / "page.prom")]) == 0
    assert "engine_version" not in capsys.readouterr().out
    assert len(server.asked) == asked
