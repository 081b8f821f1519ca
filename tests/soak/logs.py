"""A program that logs its requests, and the ways in which its log is rotated, cut, copied and compressed."""

import gzip
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

_LINES_PER_TURN = 40
_TURNS_TO_WAIT = 25


class LogWriter(threading.Thread):
    """Writes numbered usage lines, some in two pieces, and counts what it wrote.

    `counted` tells how many lines of this source the exporter has shown as counted: only then may lines be
    taken away that it could still need.
    """

    def __init__(self, folder: Path, name: str, seed: int, counted: Callable[[str], float]) -> None:
        super().__init__(name=f"writer {name}", daemon=True)
        self.source = name
        self.path = folder / f"{name}.jsonl"
        self.written = self.prompt_tokens = self.cached_tokens = 0
        self.rotations: dict[str, int] = {}
        self.stopping = threading.Event()
        self._random = random.Random(seed)
        self._counted = counted
        self._old: list[Path] = []
        self._file = self.path.open("ab", buffering=0)

    def run(self) -> None:
        ways = (self._rename, self._copy_and_truncate, self._truncate, self._compress, self._remove)
        while not self.stopping.wait(self._random.uniform(0.01, 0.1)):
            for _ in range(self._random.randint(1, _LINES_PER_TURN)):
                self._write(self._line())
            if self._random.random() < 0.04:
                way = self._random.choice(ways)
                if way():
                    self.rotations[way.__name__] = self.rotations.get(way.__name__, 0) + 1
        self._file.close()

    def _line(self) -> bytes:
        prompt = self._random.randint(1100, 9000)
        cached = self._random.choice((0, prompt // 2, prompt - 16))
        self.written += 1
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        usage = {"prompt_tokens": prompt, "completion_tokens": 3, **details}
        when = {"ts": "2026-11-29T10:00:01.000Z", "n": self.written}
        return (
            json.dumps({**when, "model": "m", "status": 200, "ttft_ms": 80, "usage": usage}).encode() + b"\n"
        )

    def _write(self, line: bytes) -> None:
        cut = self._random.randrange(len(line)) if self._random.random() < 0.05 else len(line)
        self._file.write(line[:cut])
        if cut < len(line):
            self.stopping.wait(0.002)
            self._file.write(line[cut:])

    def _next(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{self.written}")

    def _rename(self) -> bool:
        self._file.close()
        self._old.append(self.path.rename(self._next()))
        self._file = self.path.open("ab", buffering=0)
        return True

    def _copy_and_truncate(self) -> bool:
        copy = self._next()
        copy.write_bytes(self.path.read_bytes())
        self._file.truncate(0)
        self._old.append(copy)
        return True

    def _truncate(self) -> bool:
        if not self._all_counted():
            return False
        self._file.truncate(0)
        return True

    def _compress(self) -> bool:
        """As gzip does: the copy grows beside the original, which goes at the end."""
        plain = [path for path in self._old if path.suffix != ".gz"]
        if not plain:
            return False
        path = self._random.choice(plain)
        packed = gzip.compress(path.read_bytes())
        target = path.with_name(path.name + ".gz")
        with target.open("wb", buffering=0) as file:
            file.write(packed[: len(packed) // 2])
            self.stopping.wait(self._random.uniform(0.0, 0.5))
            file.write(packed[len(packed) // 2 :])
        path.unlink()
        self._old[self._old.index(path)] = target
        return True

    def _remove(self) -> bool:
        if len(self._old) < 8 or not self._all_counted():
            return False
        for path in self._old:
            path.unlink()
        self._old.clear()
        return True

    def _all_counted(self) -> bool:
        """Waits for it a little, as nothing is written meanwhile."""
        for _ in range(_TURNS_TO_WAIT):
            if self._counted(self.source) == self.written or self.stopping.wait(0.2):
                break
        return self._counted(self.source) == self.written
