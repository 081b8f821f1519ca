"""What goes wrong during a soak. To add a fault, write its method and its line in `FAULTS`."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from event_publisher import Publisher
from soak.engine import MODES, SoakEngine
from soak.exporter import Exporter

_DISK_BYTES = 3 << 20


class Disk:
    """A file system of 3 MiB for the state file; `close` lets go of it. Needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "soak", str(folder)], check=True)
        self._filler = folder / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


class Faults:
    """Breaks something at random, for some seconds, and mends it."""

    def __init__(
        self,
        chance: random.Random,
        exporter: Exporter,
        *,
        engines: list[SoakEngine],
        disk: Disk,
        publisher: Publisher,
        write_config: Callable[[bool], None],
    ) -> None:
        self.done: dict[str, int] = {}
        self.killed_without_disk = 0
        self._chance, self._exporter, self._engines = chance, exporter, engines
        self._disk, self._publisher, self._write_config = disk, publisher, write_config

    def one(self, *, kills: bool) -> None:
        """Do one fault; without `kills` one after which the exporter is the same process."""
        fault = self._chance.choice([fault for fault in FAULTS if kills or fault not in KILLS])
        self.done[fault.__name__] = self.done.get(fault.__name__, 0) + 1
        with contextlib.suppress(ProcessLookupError):
            fault(self)

    def mend(self) -> None:
        self._disk.free()
        self._exporter.set_clock(0)
        self._write_config(True)
        for engine in self._engines:
            engine.mode = "well"

    def kill(self) -> None:
        self._exporter.end(signal.SIGKILL)

    def stop(self) -> None:
        self._exporter.end(signal.SIGTERM)

    def pause(self) -> None:
        self._exporter.send(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 3.0))
        self._exporter.send(signal.SIGCONT)

    def reload_by_signal(self) -> None:
        self._write_config(True)
        self._exporter.send(signal.SIGHUP)

    def reload_bad_file(self) -> None:
        self._write_config(False)
        with contextlib.suppress(OSError):
            assert self._exporter.reload() == 500
        self._write_config(True)

    def disk_full(self) -> None:
        self._disk.fill()
        time.sleep(self._chance.uniform(0.5, 5.0))
        if self._chance.random() < 0.3:
            self._exporter.end(signal.SIGKILL)
            self.killed_without_disk += 1
        self._disk.free()

    def out_of_files(self) -> None:
        self._exporter.limit_files(self._chance.randrange(4))
        time.sleep(self._chance.uniform(0.5, 5.0))
        self._exporter.limit_files(None)

    def clock_jumps(self) -> None:
        self._exporter.set_clock(self._chance.choice((-86400, -60, 45, 3600, 700_000, 40_000_000)))
        time.sleep(self._chance.uniform(1.5, 5.0))
        if self._chance.random() < 0.5:
            self._exporter.set_clock(0)

    def engine_breaks(self) -> None:
        engine = self._chance.choice(self._engines)
        engine.mode = self._chance.choice(MODES)
        time.sleep(self._chance.uniform(0.5, 3.0))
        if self._chance.random() < 0.7:
            engine.mode = "well"

    def engine_restarts(self) -> None:
        self._chance.choice(self._engines).restart(version=self._chance.random() < 0.5)

    def events_are_lost(self) -> None:
        for number in range(self._chance.randint(1, 200)):
            self._publisher.store(number, sent=self._chance.random() < 0.8, keep=False)


FAULTS = (
    Faults.kill,
    Faults.stop,
    Faults.pause,
    Faults.reload_by_signal,
    Faults.reload_bad_file,
    Faults.disk_full,
    Faults.out_of_files,
    Faults.clock_jumps,
    Faults.engine_breaks,
    Faults.engine_restarts,
    Faults.events_are_lost,
)
KILLS = (Faults.kill, Faults.stop, Faults.disk_full)


def may_mount() -> bool:
    return os.geteuid() == 0
