"""Simulated engines over HTTP, each on its own port, whose counters increase from scrape to scrape.

`python -m benchmarks.replicas COUNT` prints the ports and serves until it is killed.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

from benchmarks.pages import full_page

PAGES = ("vllm-0.32.0", "sglang-0.5.23-c")
STEPS = 60
"""Number of different pages per engine; replicas start at different ones of the first half."""
STEP_SECONDS = 10.0
_COUNTER = re.compile(rb"^([a-z:_]+(?:_total|_bucket|_sum|_count)(?:\{.*\})? )(\S+)$", re.MULTILINE)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"


def page_at(name: str, growth: float) -> bytes:
    """An engine's page with counters increased by this share."""
    return _COUNTER.sub(lambda m: m[1] + b"%.1f" % (float(m[2]) * (1 + growth) // 1), _page(name))


@cache
def _page(name: str) -> bytes:
    return full_page(name)


def answers(name: str) -> list[bytes]:
    """HTTP responses with the page, each with counters one percent higher."""
    pages = [page_at(name, step / 100) for step in range(STEPS)]
    return [_HEAD % len(page) + page for page in pages]


async def _serve(count: int) -> None:
    began, engines = time.monotonic(), [answers(name) for name in PAGES]

    async def answer(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pages = engines[number % len(engines)]
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                step = int((time.monotonic() - began) / STEP_SECONDS) + number % (STEPS // 2)
                writer.write(pages[min(step, STEPS - 1)])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    servers = [await asyncio.start_server(partial(answer, n), "127.0.0.1", 0) for n in range(count)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()


@contextmanager
def served(count: int) -> Iterator[list[str]]:
    """Addresses of that many replicas, which run in a separate process."""
    command = [sys.executable, "-m", "benchmarks.replicas", str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield [f"127.0.0.1:{int(port)}" for port in process.stdout.readline().split()]
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
