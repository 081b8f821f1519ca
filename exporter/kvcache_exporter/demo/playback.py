"""Plays the recording: engines that answer over HTTP and logs that grow, both in recorded time."""

import json
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import IO

import msgspec

RECORDING = Path(__file__).parent / "recording.zip"
_START = re.compile(rb"^(process_start_time_seconds )(\S+)", re.MULTILINE)
_FIRST_AFTER_RESTART = re.compile(r"/50[01]_|-restart-start_")
_EVENTS = "kv-events.msgpack"
_LEAD_IN = 2.0
_LAST_ANSWER = 5.0
"""Seconds for which an engine still serves its last page before it goes down."""


@dataclass(frozen=True, slots=True)
class RecordedEngine:
    """One engine's pages and the log lines of its requests; times are seconds from the recording's start."""

    name: str
    began: float
    """Unix seconds of the recording's start."""
    pages: tuple[tuple[float, bytes], ...]
    down: tuple[tuple[float, float], ...]
    """Start and end of the times without an answer, during restarts."""
    log_name: str
    lines: tuple[tuple[float, bytes], ...]
    events: tuple[tuple[float, int, bytes], ...]
    """Batches of KV events with their sequence numbers; empty if none were recorded."""

    @property
    def length(self) -> float:
        return self.pages[-1][0]

    def page_at(self, at: float) -> bytes | None:
        """The page that a scrape at this time gets; None while the engine restarts."""
        if any(start < at < end for start, end in self.down):
            return None
        shown = [page for when, page in self.pages if when <= at]
        return shown[-1] if shown else None


def load_recording(path: Path = RECORDING) -> list[RecordedEngine]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        return [_engine(archive, folder, names) for folder in sorted({name.split("/")[0] for name in names})]


def _engine(archive: zipfile.ZipFile, folder: str, names: list[str]) -> RecordedEngine:
    own = [name for name in names if name.startswith(folder + "/")]
    timed = sorted((float(m[1]), n) for n in own if (m := re.search(r"_(\d+)\.prom$", n)))
    start = timed[0][0] - _LEAD_IN
    log_name = next(name for name in own if name.endswith(".jsonl"))
    lines = sorted(
        (_finished(line) - start, line) for line in archive.read(log_name).splitlines(keepends=True)
    )
    return RecordedEngine(
        folder,
        start,
        tuple((at - start, archive.read(name)) for at, name in timed),
        tuple(
            (before + _LAST_ANSWER - start, at - start)
            for (before, _), (at, name) in pairwise(timed)
            if _FIRST_AFTER_RESTART.search(name)
        ),
        log_name.removeprefix(folder + "/"),
        tuple(lines),
        tuple(_events(archive, f"{folder}/{_EVENTS}", start)),
    )


def _events(archive: zipfile.ZipFile, name: str, start: float) -> Iterator[tuple[float, int, bytes]]:
    if name in archive.namelist():
        batches = msgspec.msgpack.decode(archive.read(name), type=list[tuple[float, int, bytes]])
        for at, number, payload in batches:
            yield at - start, number, payload


def _finished(line: bytes) -> float:
    """When the line was written, at the end of the request, in Unix seconds."""
    record = json.loads(line)
    if "request_finished_ts" in record:
        return float(record["request_finished_ts"])
    return datetime.fromisoformat(record["ts"]).timestamp() + float(record["latency_ms"]) / 1000


class EngineServer:
    """Serves one recorded engine's pages on a free port of 127.0.0.1."""

    def __init__(self, engine: RecordedEngine, clock: Callable[[], float], speed: float = 1.0) -> None:
        """`clock` returns the time in the recording."""
        self.recorded = engine

        def started_now(match: re.Match[bytes]) -> bytes:
            """The recorded process start, shifted so that the engine's age is right at this moment."""
            recorded = float(match[2]) - engine.began
            return match[1] + b"%.2f" % (time.time() - (clock() - recorded) / speed)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                page = engine.page_at(clock())
                page = page and _START.sub(started_now, page)
                self.send_response(200 if page is not None else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class LogWriter:
    """Appends the recorded lines to a file at their recorded times."""

    def __init__(self, engine: RecordedEngine, path: Path) -> None:
        self._waiting: Iterator[tuple[float, bytes]] = iter(engine.lines)
        self._next = next(self._waiting, None)
        self._file: IO[bytes] = path.open("ab", buffering=0)

    def write_until(self, at: float) -> None:
        while self._next is not None and self._next[0] <= at:
            self._file.write(self._next[1])
            self._next = next(self._waiting, None)

    def close(self) -> None:
        self._file.close()
