"""Error of the TTFT that the cold test measures, with many concurrent streams."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.timing import Row
from kvcache_exporter.coldtest.drive import Driver, Pace
from kvcache_exporter.coldtest.endpoint import Endpoint
from kvcache_exporter.coldtest.load import Shape

CONCURRENCY = (1, 4, 16, 64)
_REQUESTS = 640
_RUNS = 3
"""Of several runs the fastest counts, as other load can only slow it down."""
_SERVER = """
import asyncio, json, time
def event(content, usage=None):
    choices = [{"index": 0, "delta": {"content": content}}] if content is not None else []
    data = b"data: " + json.dumps({"choices": choices, "usage": usage}).encode() + b"\\n\\n"
    return b"%x\\r\\n%s\\r\\n" % (len(data), data)
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
                continue
            length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
            await reader.readexactly(length)
            begin = time.perf_counter()
            writer.write(HEAD + event(""))
            await asyncio.sleep(0.1)
            took = time.perf_counter() - begin
            writer.write(event("one"))
            for _ in range(15):
                await asyncio.sleep(0.02)
                writer.write(event(" more"))
            # The only way for a number to the client is a count of the usage.
            usage = {"prompt_tokens": round(took * 1e6), "completion_tokens": 16}
            writer.write(event(None, usage) + b"e\\r\\ndata: [DONE]\\n\\n\\r\\n0\\r\\n\\r\\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def coldtest() -> Iterator[Row]:
    """The server waits 0.1 s before the first token and reports its actual wait; the client adds the rest."""
    with _server() as url:
        for concurrency in CONCURRENCY:
            middle, late = min(_quantiles(url, concurrency) for _ in range(_RUNS))
            shown = f"+{1e3 * middle:.2f} ms p50, +{1e3 * late:.2f} ms p99"
            yield Row(
                f"cold test: TTFT with {concurrency} streams", shown, "0.1 s at the server", 0.0, "2 ms"
            )


def _quantiles(url: str, concurrency: int) -> tuple[float, float]:
    added = sorted(_added(url, concurrency))
    return added[len(added) // 2], added[int(0.99 * len(added))]


def _added(url: str, concurrency: int) -> Iterator[float]:
    """Seconds by which the client's TTFT exceeds the server's."""
    shape = Shape(
        requests=min(_REQUESTS, 40 * concurrency), warm_up=20, concurrency=concurrency, max_tokens=16,
        seed=1, shared_prefix=1000, unique_share=0.2,
    )  # fmt: skip
    pace = Pace("any", concurrency, shape.max_tokens, 600.0, 60.0)
    run = Driver(Endpoint(url), pace, shape.generated("measure")).drive(lambda *_: None)
    for answer in run.answers:
        assert answer.reply is not None, answer.error
        assert answer.reply.ttft is not None
        yield answer.reply.ttft - (answer.reply.prompt_tokens or 0) / 1e6


@contextmanager
def _server() -> Iterator[str]:
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()
        if server.stdout:
            server.stdout.close()
