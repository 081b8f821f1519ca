"""The exporter under test as a process that is killed, stopped, starved and told wrong times."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import requests

_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_CLOCK = next(
    (found for name in _LIBRARIES if (found := Path(name, "faketime/libfaketimeMT.so.1")).exists()), None
)


class Exporter:
    """One exporter, and the next one after it was killed; `folder` takes its log, configuration and clock."""

    def __init__(self, folder: Path, port: int) -> None:
        self.config = folder / "kvcache.yaml"
        self.log = folder / "exporter.log"
        self.port = port
        self.lives = 0
        self.problems: list[str] = []
        self.has_clock = _CLOCK is not None
        self._clock = folder / "clock"
        self.set_clock(0)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        command = [sys.executable, "-m", "kvcache_exporter", "serve", "--config.file", str(self.config)]
        clock = {
            "LD_PRELOAD": str(_CLOCK),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--web.listen-address", f"127.0.0.1:{self.port}"],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(clock if self.has_clock else {})},
            )
        self.lives += 1

    def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.problems.append(f"life {self.lives} did not end within 30 s of {number.name}")
            self._process.kill()
            self._process.wait()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def reload(self) -> int:
        return requests.post(f"http://127.0.0.1:{self.port}/-/reload", timeout=10).status_code

    def set_clock(self, seconds: int) -> None:
        """How far the exporter's clock is off; what measures durations is not touched."""
        self._clock.write_text(f"{seconds:+d}\n")

    def limit_files(self, room: int | None) -> None:
        """Let it open at most `room` files more than it has open; None lifts the limit."""
        hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[1]
        limit = min(hard, 4096) if room is None else self._open_files() + room
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (limit, hard))

    def _open_files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()
