"""The built page of the boards in a headless Chromium: served with the boards and a way to Prometheus."""

import mimetypes
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import requests
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
DIST = HERE / "dist"
ICONS = HERE / "node_modules" / "@grafana" / "ui" / "dist" / "public" / "img"
_ICONS_PATH = "/public/build/img/"
_FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_SETTLED = {"Done", "Error"}
_DRAWING_SECONDS = 1.5
_LONGEST_WAIT = 60.0


class PanelState(NamedTuple):
    """What a panel shows; `values` counts the numbers it was given."""

    title: str
    state: str
    errors: list[str]
    values: int


@contextmanager
def page_server(boards: Mapping[str, str], prometheus: str) -> Iterator[str]:
    """Serves the page, /boards/<file name> and Prometheus below /prom on a free port; the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if self.path.startswith("/prom/"):
                self._forward(None)
            elif path.startswith("/boards/"):
                self._answer(200, "application/json", boards[path.removeprefix("/boards/")].encode())
            else:
                self._file(path)

        def do_POST(self) -> None:
            self._forward(self.rfile.read(int(self.headers["Content-Length"])))

        def _forward(self, body: bytes | None) -> None:
            url = prometheus + self.path.removeprefix("/prom")
            headers = {"Content-Type": self.headers.get("Content-Type", "")}
            answer = requests.request(self.command, url, data=body, headers=headers, timeout=30)
            self._answer(answer.status_code, "application/json", answer.content)

        def _file(self, path: str) -> None:
            icon = path.startswith(_ICONS_PATH)
            file = (
                ICONS / path.removeprefix(_ICONS_PATH) if icon else DIST / (path.lstrip("/") or "index.html")
            )
            if not file.is_file():
                self._answer(404, "text/plain", b"")
                return
            self._answer(200, mimetypes.guess_type(file.name)[0] or "text/plain", file.read_bytes())

        def _answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_page(width: int = 1400, height: int = 900) -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page(viewport={"width": width, "height": height}, timezone_id="UTC")


def show(page: Page, url: str, uid: str, span: tuple[float, float]) -> list[PanelState]:
    """Opens a board over the span (Unix seconds); waits until every panel has its answer and is drawn."""
    begin, until = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in span)
    page.goto(f"{url}/?uid={uid}&from={begin}&to={until}")
    page.wait_for_function("window.panelStates")
    end = time.monotonic() + _LONGEST_WAIT
    while True:
        states = [PanelState(**state) for state in _states(page)]
        waiting = [state.title for state in states if state.state not in _SETTLED]
        if not waiting:
            time.sleep(_DRAWING_SECONDS)
            return states
        if time.monotonic() > end:
            raise TimeoutError(f"{uid}: panels without an answer after {_LONGEST_WAIT:g} s: {waiting}")
        time.sleep(0.2)


def _states(page: Page) -> list[dict[str, Any]]:
    states: list[dict[str, Any]] = page.evaluate("window.panelStates()")
    return states
