"""`demo`: plays a shipped recording of real engines through the exporter and shows the four questions."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from kvcache_exporter.app import App
from kvcache_exporter.commands import logs
from kvcache_exporter.commands.arguments import Subparsers, duration
from kvcache_exporter.demo.answers import answers
from kvcache_exporter.demo.events import EventPublisher
from kvcache_exporter.demo.playback import EngineServer, LogWriter, load_recording
from kvcache_exporter.pages import ExporterPages
from kvcache_exporter.web import WebServer, web_server

_CONFIG = """scrape: {{interval: 1s, timeout: 1s, max_age: 500ms}}
targets:
  - {{engine: auto, static: {addresses}}}
requests:
  - {{name: gateway, format: vllm, paths: ["{folder}/gateway.jsonl"], start_at: beginning}}
  - {{name: sglang, format: sglang_metrics_file, paths: ["{folder}/request-metrics.jsonl"],
     start_at: beginning, model_name: tiny-llama}}
events: {events}
"""
_LINE_EVERY = 5.0


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="try it: play a recording of real engines through the exporter",
        epilog="Example: kvcache-exporter demo --duration 20s",
        description="Plays a recording of vLLM and SGLang under load, which comes with the package, through "
        "the real exporter, serves its metrics and shows the answers to the four questions as they change.",
    )
    parser.add_argument(
        "--duration",
        type=duration,
        metavar="T",
        help="stop after this long, such as 20s (default: at the end)",
    )
    parser.add_argument(
        "--speed",
        type=_speed,
        default=4.0,
        metavar="X",
        help="how many times faster than real time (default 4)",
    )
    parser.add_argument(
        "--web.listen-address", dest="listen", default="127.0.0.1:9409", metavar="HOST:PORT",
        help="where to listen (default 127.0.0.1:9409)",
    )  # fmt: skip
    logs.add_arguments(parser)
    parser.set_defaults(run=run, log_level="error")


def _speed(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def run(arguments: argparse.Namespace) -> int:
    logs.configure(arguments)
    engines = load_recording()
    started = time.monotonic()

    def clock() -> float:
        return (time.monotonic() - started) * float(arguments.speed)

    length = max(engine.length for engine in engines) / arguments.speed + 2.0
    end = started + (arguments.duration or length)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvcache-demo-")))
        servers = [
            stack.enter_context(closing(EngineServer(engine, clock, arguments.speed))) for engine in engines
        ]
        writers = [stack.enter_context(closing(LogWriter(e, folder / e.log_name))) for e in engines]
        publishers = {s.address: stack.enter_context(closing(EventPublisher(s.recorded))) for s in servers}
        config = _config(folder, publishers)
        app, server = stack.enter_context(_running(config, arguments.listen))
        print(_introduction(servers, server.url, arguments.speed))
        with suppress(KeyboardInterrupt):
            _play(app, [*writers, *publishers.values()], clock, end)
        _show(app, clock(), again=False)
    return 0


def _play(
    app: App, writers: Sequence[LogWriter | EventPublisher], clock: Callable[[], float], end: float
) -> None:
    shown = 0.0
    while (now := time.monotonic()) < end:
        for writer in writers:
            writer.write_until(clock())
        if now - shown >= (1.0 if sys.stdout.isatty() else _LINE_EVERY):
            shown = now
            _show(app, clock(), again=sys.stdout.isatty())
        time.sleep(0.1)


def _config(folder: Path, publishers: Mapping[str, EventPublisher]) -> Path:
    """`publishers` by the address of their engine."""
    path = folder / "kvcache.yaml"
    events = [
        {"target": address, "endpoint": publisher.endpoint}
        for address, publisher in publishers.items()
        if publisher.recorded.events
    ]
    text = _CONFIG.format(addresses=list(publishers), events=events, folder=folder)
    path.write_text(text.replace("'", '"'))
    return path


@contextmanager
def _running(config: Path, listen: str) -> Iterator[tuple[App, WebServer]]:
    app = App(config)
    server = web_server(listen, ExporterPages(app))
    app.start()
    server.start()
    try:
        yield app, server
    finally:
        server.stop()
        app.stop()


def _introduction(engines: list[EngineServer], url: str, speed: float) -> str:
    names = " and ".join(engine.recorded.name for engine in engines)
    pages = " and ".join(f"http://{engine.address}/metrics" for engine in engines)
    return (
        f"Playing a recording of {names} at {speed:g} times its speed.\n"
        f"Watch the four questions live on {url}/ ; the metrics are on {url}/metrics .\n"
        f"The engines' own pages: {pages} . Ctrl-C ends it.\n"
    )


def _show(app: App, at: float, *, again: bool) -> None:
    """`again` lets the next output overwrite this one instead of scrolling."""
    collectors = [job.collector for job in app.scheduler.jobs.values()]
    ledgers = [source.ledger for source in app.sources]
    lines = [f"recorded second {at:.0f}", *answers(collectors, ledgers, "1m", time.time()), ""]
    erase = "\x1b[2K" if sys.stdout.isatty() else ""
    end = f"\x1b[{len(lines) - 1}A\r" if again else "\n"
    print("\n".join(f"{erase}{line}" for line in lines), end=end, flush=True)
