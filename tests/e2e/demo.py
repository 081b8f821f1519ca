"""The command `demo` as a process."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from processes import running


@contextmanager
def playing(speed: float) -> Iterator[str]:
    """The URL it prints; it ends by itself when the recording does."""
    command = [sys.executable, "-m", "kvcache_exporter", "demo", "--speed", str(speed)]
    with running(
        subprocess.Popen([*command, "--web.listen-address", "127.0.0.1:0"], stdout=subprocess.PIPE)
    ) as process:
        assert process.stdout is not None
        with process.stdout as printed:
            first = b"".join(next(iter(printed)) for _ in range(2)).decode()
            found = re.search(r"http://127\.0\.0\.1:\d+/", first)
            assert found, f"demo does not say where to look: {first}"
            yield found[0]
