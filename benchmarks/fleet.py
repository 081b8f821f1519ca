"""A fleet scraped over HTTP by the real process: share of one core, resident memory."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import requests

from benchmarks.pages import full_page
from benchmarks.timing import Row

REPLICAS = 200
SECONDS = 60.0
_SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
page = sys.stdin.buffer.read()
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
    def log_message(self, *args): pass
class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def fleet() -> Iterator[Row]:
    """Names of 127.0.0.0/8 stand for replicas: each has its own connection, all end at one server."""
    engine = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write(full_page("vllm-0.32.0"))
        engine.stdin.close()
        share, memory = _measure(int(engine.stdout.readline()))
    finally:
        engine.kill()
        engine.wait()
    what = f"{REPLICAS} replicas scraped every 15 s, read every 15 s"
    yield Row(what, f"{100 * share:.1f} % of a core, {memory:.0f} MiB", "", 0.0, "<= 10 %")


def _measure(port: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        addresses = [f"127.0.{n // 250}.{n % 250 + 1}:{port}" for n in range(REPLICAS)]
        config = Path(folder) / "kvcache.yaml"
        config.write_text(f"targets: [{{engine: auto, static: {addresses}}}]\n".replace("'", '"'))
        exporter = subprocess.Popen(
            [sys.executable, "-m", "kvcache_exporter", "serve", "--config.file", str(config),
             "--web.listen-address", "127.0.0.1:19419", "--log.level", "error"]
        )  # fmt: skip
        try:
            time.sleep(20)
            before = _cpu(exporter.pid)
            reader = Thread(target=_read_every_15_seconds, daemon=True)
            reader.start()
            time.sleep(SECONDS)
            used = _cpu(exporter.pid) - before
            return used / SECONDS, _memory(exporter.pid)
        finally:
            exporter.terminate()
            exporter.wait()


def _read_every_15_seconds() -> None:
    for _ in range(int(SECONDS / 15)):
        requests.get("http://127.0.0.1:19419/metrics", timeout=10).raise_for_status()
        time.sleep(15)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))
