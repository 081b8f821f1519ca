"""Scraping many targets: nobody waits for one that hangs, and one that vanished is gone at once."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ScrapeError, StateError
from kvcache_exporter.exposition import Renderer
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.scrape.scheduler import Job, Scheduler

PAGE = b'vllm:prompt_tokens_total{model_name="m",engine="0"} 5\n'


class Answering:
    """A target that answers at once and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = False

    def fetch(self) -> bytes:
        self.asked += 1
        return PAGE

    def close(self) -> None:
        self.closed = True


class Hanging(Answering):
    """A target that hangs until its timeout."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout

    def fetch(self) -> bytes:
        self.asked += 1
        time.sleep(self._timeout)
        raise ScrapeError("timeout", "no answer")


class Failing(Answering):
    def fetch(self) -> bytes:
        self.asked += 1
        raise ZeroDivisionError("a fault of ours")


def job(name: str, fetcher: Answering) -> Callable[[], Job]:
    return lambda: Job(name, TargetCollector(name, ENGINES), fetcher, Renderer())


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(interval=0.2, concurrency=16)
    made.start()
    yield made
    made.stop()


def wait_for(check: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_each_target_is_asked_once_an_interval(scheduler: Scheduler) -> None:
    target = Answering()
    scheduler.set_jobs({"a": job("a", target)})
    started = time.monotonic()
    wait_for(lambda: target.asked >= 5, 20.0)
    assert target.asked <= 2 + (time.monotonic() - started) / 0.2


def test_hanging_targets_never_delay_the_others(scheduler: Scheduler) -> None:
    """More of them than there are threads."""
    hanging = {f"h{n}": Hanging(0.5) for n in range(40)}
    healthy = {f"ok{n}": Answering() for n in range(20)}
    scheduler.set_jobs({name: job(name, f) for name, f in {**hanging, **healthy}.items()})
    # Each hangs once before it is known for it; after that healthy ones keep their pace.
    wait_for(lambda: all(j.suspect for n, j in scheduler.jobs.items() if n in hanging), 20.0)
    before = {name: target.asked for name, target in healthy.items()}
    # In turn, 40 would take 1.25 s of 16 threads for each.
    wait_for(lambda: min(target.asked - before[name] for name, target in healthy.items()) >= 4, 4.0)


def test_a_page_on_demand_waits_for_fresh_pages_but_not_for_hanging_targets() -> None:
    scheduler = Scheduler(interval=60.0, concurrency=16)
    healthy, hanging = Answering(), Hanging(3.0)
    scheduler.set_jobs({"ok": job("ok", healthy), "h": job("h", hanging)})
    started = time.monotonic()
    scheduler.freshen(max_age=0.0, budget=0.1)
    assert time.monotonic() - started < 2.0
    assert healthy.asked == 1
    wait_for(lambda: scheduler.jobs["h"].suspect)
    started = time.monotonic()
    scheduler.freshen(max_age=0.0, budget=10.0)
    assert time.monotonic() - started < 2.0
    assert (healthy.asked, hanging.asked) == (2, 1)
    scheduler.freshen(max_age=30.0, budget=10.0)
    assert healthy.asked == 2
    scheduler.stop()


def test_a_scrape_on_demand_takes_the_tickers_turn(scheduler: Scheduler) -> None:
    target = Answering()
    scheduler.set_jobs({"a": job("a", target)})
    wait_for(lambda: target.asked > 0)
    started = time.monotonic()
    for _ in range(40):
        scheduler.freshen(max_age=0.1, budget=1.0)
        time.sleep(0.02)
    assert target.asked <= 2 + (time.monotonic() - started) / 0.1


def test_a_target_that_left_is_gone_from_the_page_at_once(scheduler: Scheduler) -> None:
    targets = {name: Answering() for name in ("a", "b")}
    scheduler.set_jobs({name: job(name, f) for name, f in targets.items()})
    wait_for(lambda: all(j.block for j in scheduler.jobs.values()))
    kept = scheduler.jobs["a"]
    scheduler.set_jobs({"a": job("a", Answering())})
    texts = [block[c.TARGET_UP].text for block in scheduler.blocks()]
    assert texts == ['kvcache_target_up{target="a",engine="vllm"} 1.0\n']
    assert scheduler.jobs["a"] is kept, "a known target keeps its history"
    assert targets["b"].closed


def test_a_target_that_left_is_no_measure_for_its_model_any_more() -> None:
    """Else the replicas that are left would warm up against one that is not there."""
    fleet = Fleet()
    fleet.report("a", ["m"], 900, 1000, warm=True)
    scheduler = Scheduler(interval=60.0, concurrency=2)
    collector = TargetCollector("a", ENGINES, fleet=fleet)
    scheduler.set_jobs({"a": lambda: Job("a", collector, Answering(), Renderer())})
    scheduler.set_jobs({})
    assert fleet.hit_ratio(["m"], but="b") is None
    scheduler.stop()


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_target_that_left_still_answers_counts_no_more(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(Answering):
        begun, leave = threading.Event(), threading.Event()

        def fetch(self) -> bytes:
            self.begun.set()
            assert self.leave.wait(10.0)
            if fails:
                raise ScrapeError("connection", "closed")
            return PAGE

    late = Late()
    collector = TargetCollector("a", ENGINES)
    scheduler = Scheduler(interval=60.0, concurrency=2)
    scheduler.set_jobs({"a": lambda: Job("a", collector, late, Renderer())})
    held = scheduler.jobs["a"]
    scheduler.freshen(max_age=0.0, budget=0.0)
    assert late.begun.wait(10.0)
    scheduler.set_jobs({})
    late.leave.set()
    wait_for(lambda: held.running is not None and held.running.done())
    assert (collector.up, collector.last_error, collector.samples) == (False, "", [])
    assert "target a" not in caplog.text
    scheduler.stop()


def test_a_fault_of_ours_is_counted_and_stops_nothing(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Failing(), Answering()
    scheduler.set_jobs({"bad": job("bad", bad), "good": job("good", good)})
    wait_for(lambda: bad.asked > 1 and good.asked > 1)
    wait_for(lambda: c.TARGET_SCRAPE_FAILURES in scheduler.jobs["bad"].block)
    text = scheduler.jobs["bad"].block[c.TARGET_SCRAPE_FAILURES].text
    assert 'reason="internal"' in text
    assert "unexpected fault; please report it" in caplog.text


def test_what_could_not_be_kept_is_tried_again_at_each_scrape_and_told_once(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    full = threading.Event()
    full.set()
    tries: list[bytes] = []
    kept: list[bytes] = []

    def keep(data: bytes) -> None:
        tries.append(data)
        if full.is_set():
            raise StateError("the disk is full")
        kept.append(data)

    def made() -> Job:
        found = job("a", Answering())()
        found.keep = keep
        return found

    scheduler.set_jobs({"a": made})
    wait_for(lambda: len(tries) > 3)
    full.clear()
    wait_for(lambda: bool(kept))
    asked = scheduler.jobs["a"].scraped
    wait_for(lambda: scheduler.jobs["a"].scraped > asked + 0.5)
    assert len(kept) == 1, "what is kept is written again only when it changes"
    assert caplog.text.count("its state is not kept: the disk is full") == 1


def test_a_target_says_once_that_it_is_down_and_once_that_it_is_up(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    class Flapping(Answering):
        healthy = threading.Event()

        def fetch(self) -> bytes:
            self.asked += 1
            if self.healthy.is_set():
                return PAGE
            raise ScrapeError("connection", "refused")

    caplog.set_level("INFO")
    target = Flapping()
    scheduler.set_jobs({"a": job("a", target)})
    wait_for(lambda: target.asked > 3)
    target.healthy.set()
    wait_for(lambda: target.asked > 6)
    wait_for(lambda: scheduler.jobs["a"].collector.up)
    assert caplog.text.count("target a: connection: refused") == 1
    assert caplog.text.count("target a: up again") == 1
