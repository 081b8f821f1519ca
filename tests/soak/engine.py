"""An engine whose every counter is known, and that can die, hang, restart and change version."""

import contextlib
import random
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_PAGES = Path(__file__).parents[1] / "fixtures" / "engines"
VERSIONS = ("vllm-0.32.0", "vllm-0.29.0")
MODES = ("well", "dead", "hung", "dripping", "cut", "refusing", "stranger")
_PROMPT = re.compile(
    rb"^(vllm:(?:prompt_tokens_total|prefix_cache_queries_total)\{[^}]*\}) .*$", re.MULTILINE
)
_CACHED = re.compile(
    rb"^(vllm:(?:prompt_tokens_cached_total\{[^}]*|prefix_cache_hits_total\{[^}]*"
    rb"|prompt_tokens_cached_by_source_total\{[^}]*source=\"device\"[^}]*)\}) .*$",
    re.MULTILINE,
)
_START = re.compile(rb"^(process_start_time_seconds) .*$", re.MULTILINE)


class SoakEngine:
    """Serves until `close`; each page that it hands out has more tokens than the one before."""

    def __init__(self, seed: int) -> None:
        self.mode = "well"
        self.prompt = self.cached = 0
        self.shown: set[float] = set()
        """All values that its counter of prompt tokens ever had on a page."""
        self.restarts = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._version = VERSIONS[0]
        self._started = time.time()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                engine.answer(self)

            def handle(self) -> None:
                # Clients that are killed leave in the middle.
                with contextlib.suppress(OSError):
                    super().handle()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def restart(self, *, version: bool = False) -> None:
        """Counters start anew; with `version` as another version."""
        with self._lock:
            self.prompt = self.cached = 0
            self._started = time.time()
            self.restarts += 1
            if version:
                self._version = self._random.choice(VERSIONS)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        mode = self.mode
        if mode == "dead":
            request.close_connection = True
            return
        if mode in ("hung", "dripping"):
            for _ in range(30):
                if mode == "dripping":
                    request.wfile.write(b"H")
                time.sleep(0.1)
            request.close_connection = True
            return
        page = b"# TYPE up gauge\nup 1\n" if mode == "stranger" else self._page() if mode == "well" else b"x"
        request.send_response(500 if mode == "refusing" else 200)
        request.send_header("Content-Type", "text/plain; version=0.0.4")
        request.send_header("Content-Length", str(len(page) + (999 if mode == "cut" else 0)))
        request.end_headers()
        request.wfile.write(page)
        request.close_connection |= mode == "cut"

    def _page(self) -> bytes:
        with self._lock:
            gained = self._random.randint(1, 5000)
            self.prompt += gained
            self.cached += self._random.randint(0, gained)
            self.shown.add(float(self.prompt))
            page = (_PAGES / self._version / "page.prom").read_bytes()
            for pattern, value in ((_PROMPT, self.prompt), (_CACHED, self.cached), (_START, self._started)):
                page = pattern.sub(rb"\1 %s" % repr(float(value)).encode(), page)
            return page

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
