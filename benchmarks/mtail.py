"""The reference for logs: mtail (https://github.com/google/mtail) on one core."""

import os
import resource
import shutil
import subprocess
from pathlib import Path


def installed() -> bool:
    return shutil.which("mtail") is not None


def mtail_seconds(path: Path, program: str, folder: Path) -> float:
    """CPU seconds to read the file, less those for an empty file."""
    source, empty = folder / "program.mtail", folder / "empty.log"
    source.write_text(program)
    empty.touch()
    return min(_run(path, source) for _ in range(2)) - _run(empty, source)


def _run(path: Path, program: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["mtail", "--one_shot", "--address", "127.0.0.1", "--port", "0"]
    command += ["--progs", str(program), "--logs", str(path)]
    done = subprocess.run(
        command, check=True, capture_output=True, preexec_fn=lambda: os.sched_setaffinity(0, {0})
    )
    assert b"rror" not in done.stderr, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
