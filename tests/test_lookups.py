"""A resolver that hangs: who waits for it, for how long, and what is said of it."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import requests
from processes import Engine, wait_until

from event_publisher import Publisher
from kvcache_exporter.app import App
from kvcache_exporter.events import subscribe
from kvcache_exporter.events.sockets import has_name, located
from kvcache_exporter.events.source import EventOptions, EventSource
from kvcache_exporter.lookups import HungLookupError, Lookups
from kvcache_exporter.pages import ExporterPages
from kvcache_exporter.targets import polled
from kvcache_exporter.web import web_server

PAGE = (Path(__file__).parent / "fixtures/engines/vllm-0.32.0/page.prom").read_bytes()


class Resolver:
    """Stands in for the system's: names that end in .hang have no answer until `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked: list[str] = []
        self.address = "127.0.0.1"
        self.failing = False
        self._system = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if not str(host).endswith((".hang", ".test")):
            return self._system(host, port, *args, **more)
        self.asked.append(host)
        if host.endswith(".hang"):
            self.answer.wait(60.0)
        if self.failing or host.startswith("nobody"):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._system(self.address, port, *args, **more)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answer.set()


def seconds_of(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def test_a_name_is_looked_up_once_at_a_time_however_many_ask(resolver: Resolver) -> None:
    lookups = Lookups()
    for _ in range(5):
        with pytest.raises(HungLookupError, match="hangs; check the resolver"):
            lookups.find("a.hang", 80, 0.01)
    assert resolver.asked == ["a.hang"]


def test_an_answer_that_came_too_late_serves_the_next_who_asks(resolver: Resolver) -> None:
    """And nobody after that: addresses change."""
    lookups = Lookups()
    with pytest.raises(HungLookupError):
        lookups.find("a.hang", 80, 0.01)
    resolver.answer.set()
    assert [info[4] for info in lookups.find("a.hang", 8000, 10.0)] == [("127.0.0.1", 8000)]
    assert [info[4] for info in lookups.find("a.hang", 8001, 10.0)] == [("127.0.0.1", 8001)]
    assert resolver.asked == ["a.hang", "a.hang"]


def test_more_hanging_names_than_there_is_room_for_are_refused_at_once(resolver: Resolver) -> None:
    lookups = Lookups(most=3)
    for number in range(5):
        with pytest.raises(HungLookupError, match="3 names hang already" if number > 2 else "hangs"):
            lookups.find(f"{number}.hang", 80, 0.01)
    assert len(resolver.asked) == 3
    assert lookups.find("127.0.0.1", 80, 0.0)[0][4] == ("127.0.0.1", 80), "an address takes no look-up"
    resolver.answer.set()
    wait_until("the room that answers take being free", lambda: bool(lookups.find("1.hang", 80, 5.0)))


def test_a_name_without_an_address_is_an_error_each_time(resolver: Resolver) -> None:
    lookups = Lookups()
    for _ in range(2):
        with pytest.raises(socket.gaierror, match="Temporary failure"):
            lookups.find("nobody.test", 80, 10.0)


def test_an_event_loop_waits_as_long_as_it_likes_and_leaves_no_thread_that_must_end(
    resolver: Resolver,
) -> None:
    lookups = Lookups()

    async def look(host: str, seconds: float = 10.0) -> Any:
        async with asyncio.timeout(seconds):
            return await lookups.found(host, 6443)

    with pytest.raises(TimeoutError):
        asyncio.run(look("a.hang", 0.05))
    looking = [thread for thread in threading.enumerate() if thread.name == "look-up a.hang"]
    assert [thread.daemon for thread in looking] == [True]
    with pytest.raises(socket.gaierror):
        asyncio.run(look("nobody.test"))
    resolver.answer.set()
    assert asyncio.run(look("a.hang"))[0][4] == ("127.0.0.1", 6443)
    assert resolver.asked == ["a.hang", "nobody.test"]


CONFIG = """
scrape: {{interval: 400ms, timeout: 400ms, max_age: 100ms, concurrency: 8}}
targets:
  - {{engine: vllm, static: ["{engine}", {names}]}}
{groups}
probe: {{modules: [{{name: m, engine: vllm, allow: ["*.hang:80"]}}]}}
"""


def test_hanging_look_ups_delay_neither_other_targets_nor_pages_nor_reload_nor_the_end(
    resolver: Resolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there are threads, in static targets, in DNS discovery and in a probe."""
    monkeypatch.setattr(polled, "GRACE_SECONDS", 0.5)
    names = ", ".join(f'"{number}.hang:80"' for number in range(30))
    groups = "\n".join(
        f"  - {{engine: vllm, dns: {{name: group-{n}.hang, type: A, port: 80}}}}" for n in range(20)
    )
    with ExitStack() as stack:
        engine = stack.enter_context(closing(Engine(tmp_path)))
        engine.page = PAGE
        file = tmp_path / "kvcache.yaml"
        file.write_text(CONFIG.format(engine=engine.address, names=names, groups=groups))
        app = App(file)
        assert seconds_of(app.start) < 5.0, "all groups together wait for as long as one"
        server = stack.enter_context(web_server("127.0.0.1:0", ExporterPages(app)))
        job = app.scheduler.jobs[engine.address]
        wait_until("hanging targets being known for it", lambda: _suspects(app) == 30, 40.0)
        before = job.scraped
        wait_until("the healthy one being asked", lambda: job.scraped > before + 1.0, 10.0)
        assert seconds_of(lambda: requests.get(f"{server.url}/metrics", timeout=30)) < 5.0
        assert seconds_of(app.reload) < 5.0
        assert app.reload_ok
        told = requests.get(f"{server.url}/probe?target=a.hang:80", timeout=30).text
        assert 'kvcache_probe_failed{target="a.hang:80",reason="lookup"} 1' in told
        text = requests.get(f"{server.url}/metrics", timeout=30).text
        assert 'kvcache_target_scrape_failures_total{target="0.hang:80",reason="lookup"}' in text
        assert f'kvcache_target_up{{target="{engine.address}",engine="vllm"}} 1.0' in text
        assert "hangs; check the resolver" in app.scheduler.jobs["0.hang:80"].collector.last_error
        assert max(map(resolver.asked.count, resolver.asked)) == 1
        assert seconds_of(app.stop) < 10.0


def _suspects(app: App) -> int:
    return sum(job.suspect for job in app.scheduler.jobs.values())


def test_an_event_source_whose_name_hangs_holds_up_no_other(resolver: Resolver) -> None:
    """ZeroMQ itself would look names up in the one thread that serves all sockets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hanging = EventSource(EventOptions("h", "tcp://engine.hang:5557"))
    named = EventSource(EventOptions("n", f"tcp://engine.test:{port}"))
    with Publisher(port) as engine, ExitStack() as stack:
        for source in (hanging, named):
            source.start()
            stack.callback(source.join)
            stack.callback(source.stop)
        engine.subscribed()
        engine.store(1, 2)
        wait_until("events of the other", lambda: named.ledgers[0].stored["device"] == 2)
        assert resolver.asked.count("engine.hang") == 1


def test_an_engine_that_comes_back_with_another_address_is_found(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the resolver is away in between: the last known address is tried until it is back."""
    monkeypatch.setattr(subscribe, "_LOOK_AGAIN_SECONDS", 0.3)
    monkeypatch.setattr(subscribe, "_REOPEN_SECONDS", 0.1)
    resolver.address = "127.0.0.2"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = EventSource(EventOptions("n", f"tcp://engine.test:{port}"))
    with Publisher(port) as engine, ExitStack() as stack:
        source.start()
        stack.callback(source.join)
        stack.callback(source.stop)
        wait_until("the name being looked up again", lambda: resolver.asked.count("engine.test") > 2)
        monkeypatch.setattr(resolver, "failing", True)
        asked = len(resolver.asked)
        wait_until("look-ups that fail", lambda: len(resolver.asked) > asked + 1)
        monkeypatch.setattr(resolver, "failing", False)
        resolver.address = "127.0.0.1"
        engine.subscribed()
        engine.store(1, 2)
        wait_until("its events", lambda: source.ledgers[0].stored["device"] == 2)


@pytest.mark.parametrize(
    ("endpoint", "needs"),
    [
        ("tcp://engine.test:5557", True),
        ("tcp://127.0.0.1:5557", False),
        ("tcp://[::1]:5557", False),
        ("tcp://*:5557", False),
        ("ipc:///tmp/events", False),
        ("inproc://events", False),
    ],
)
def test_only_names_in_endpoints_are_looked_up(resolver: Resolver, endpoint: str, needs: bool) -> None:
    assert has_name(endpoint) == needs
    assert located(endpoint) == ("tcp://127.0.0.1:5557" if needs else endpoint)
    assert bool(resolver.asked) == needs
