"""Engines that answer over HTTP: `python -m benchmarks.replicas` prints its port and serves until killed.

Every name of 127.0.0.0/8 is a replica: by its Host header a request finds the replica's own page, whose
counters go up from scrape to scrape.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.pages import full_page

PAGES = ("vllm-0.32.0", "sglang-0.5.23-c")
STEPS = 60
"""Different pages of each engine; replicas are at different ones of the first half."""
STEP_SECONDS = 10.0
_COUNTER = re.compile(rb"^([a-z:_]+(?:_total|_bucket|_sum|_count)(?:\{.*\})? )(\S+)$", re.MULTILINE)


def step_pages(name: str) -> list[bytes]:
    """The page of an engine whose counters went on by a hundredth of themselves each time."""

    def at(step: int) -> bytes:
        page = full_page(name)
        return _COUNTER.sub(lambda m: m[1] + b"%.1f" % (float(m[2]) * (1 + step / 100) // 1), page)

    return [at(step) for step in range(STEPS)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    pages: tuple[list[bytes], ...] = ()
    began = time.monotonic()

    def do_GET(self) -> None:
        number = replica_number(self.headers["Host"].partition(":")[0])
        step = int((time.monotonic() - self.began) / STEP_SECONDS) + number % (STEPS // 2)
        pages = self.pages[number % len(self.pages)]
        page = pages[min(step, STEPS - 1)]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def address(number: int, port: int) -> str:
    return f"127.0.{number // 250}.{number % 250 + 1}:{port}"


def replica_number(host: str) -> int:
    _, _, hundreds, ones = host.split(".")
    return int(hundreds) * 250 + int(ones) - 1


@contextmanager
def served() -> Iterator[int]:
    """A process of its own; its port."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.replicas"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def main() -> None:
    _Handler.pages = tuple(map(step_pages, PAGES))
    server = _Server(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
