"""Numbers that cannot be right are named by their reason, and those of sound recordings never are."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.fleet import Fleet

RECORDINGS = Path(__file__).parent / "fixtures" / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())
AT = 1_795_950_000.0


def recorded(name: str) -> Iterator[tuple[float, bytes]]:
    for page in sorted((RECORDINGS / name).glob("*.prom")):
        yield float(re.findall(r"_(\d+)\.prom", page.name)[0]), page.read_bytes()


def collect(pages: Iterator[tuple[float, bytes]]) -> TargetCollector:
    collector = TargetCollector("t", ENGINES)
    for at, page in pages:
        collector.page(page, at)
        assert collector.up
    return collector


def found(collector: TargetCollector) -> dict[str, int]:
    return {reason: count for reason, count in collector.anomalies.items() if count}


def slower(name: str, change: Callable[[bytes], bytes] = lambda page: page) -> Iterator[tuple[float, bytes]]:
    """The recording at a pace at which windows of five minutes are full."""
    return ((AT + 5 * (at - AT), change(page)) for at, page in recorded(name))


def at_rest(series: bytes) -> Callable[[bytes], bytes]:
    """Pages on which the series that begin like this pattern show their first values for ever."""
    line = re.compile(rb"^(%b[^}]*\} )(\S+)$" % series, re.MULTILINE)
    first: dict[bytes, bytes] = {}
    return lambda page: line.sub(lambda match: match[1] + first.setdefault(match[1], match[2]), page)


@pytest.mark.parametrize("pace", [slower, recorded])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_recorded_is_frozen_or_goes_back_or_jumps_between_processes(
    name: str, pace: Callable[[str], Iterator[tuple[float, bytes]]]
) -> None:
    """Hostile phases without one cached token, restarts, ranks and tiers included."""
    assert not found(collect(pace(name))).keys() & {
        "frozen", "went_back", "alternating", "hits_exceed_queries", "negative", "not_finite"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("vllm-0.29.0", rb"vllm:prefix_cache_hits_total\{"),
        ("vllm-0.29.0", rb"vllm:prompt_tokens_cached_total\{"),
        ("vllm-0.13.0", rb"vllm:prefix_cache_hits_total\{"),
        ("vllm-0.10.2", rb"vllm:gpu_prefix_cache_hits_total\{"),
        ("sglang-0.5.23-a", rb"sglang:cached_tokens_total\{"),
        ("sglang-0.5.18-a", rb"sglang:prefill_effective_tokens_total\{.*_hit"),
    ],
)
def test_cached_tokens_that_stand_still_while_others_see_them_are_frozen(name: str, series: bytes) -> None:
    """The old pair of names beside the new one included."""
    assert found(collect(slower(name, at_rest(series))))["frozen"] > 0


@pytest.mark.parametrize(("cached", "frozen"), [(0, False), (6_000, True)])
def test_a_cache_hostile_hour_is_not_frozen(cached: int, frozen: bool) -> None:
    """All prompts computed: nothing stood still that should have moved. Some not computed: it should have."""

    def page(minute: int) -> bytes:
        tokens = 10_000 * minute
        return (
            b'vllm:prefix_cache_queries_total{model_name="m"} %d\n'
            b'vllm:prefix_cache_hits_total{model_name="m"} 900\n'
            b'vllm:request_success_total{model_name="m"} %d\nvllm:prompt_tokens_total{model_name="m"} %d\n'
            b'vllm:request_prompt_tokens_sum{model_name="m"} %d\n'
            b'vllm:request_prefill_kv_computed_tokens_sum{model_name="m"} %d\n'
            % (tokens, 10 * minute, tokens, tokens, tokens - cached * minute)
        )

    collector = collect((AT + 60 * minute, page(minute)) for minute in range(61))
    assert ("frozen" in found(collector)) == frozen


@pytest.mark.parametrize("name", NAMES)
def test_preempted_requests_make_only_a_hit_rate_of_lookups_doubtful(name: str) -> None:
    """vLLM 0.10.2 counts 44.5 % of prompts that share nothing: preempted requests find their own blocks."""
    collector = collect(recorded(name))
    assert (collector.anomalies["preempted_lookups"] > 0) == (name == "vllm-0.10.2")


def test_more_hits_than_queries_are_an_anomaly_whatever_the_hit_rate_is_made_of() -> None:
    def page(queries: int, hits: int, extra: bytes = b"") -> bytes:
        return (
            b"vllm:prefix_cache_queries_total %d\nvllm:prefix_cache_hits_total %d\n" % (queries, hits) + extra
        )

    prompts = b"vllm:prompt_tokens_total 100\nvllm:prompt_tokens_cached_total 0\n"
    for extra in (b"", prompts):
        collector = collect(iter([(AT, page(0, 0, extra)), (AT + 15, page(100, 101, extra))]))
        assert found(collector) == {"hits_exceed_queries": 1}


COUNTERS = (b"prompt_tokens", b"prompt_tokens_cached", b"prefix_cache_queries", b"prefix_cache_hits",
            b"num_preemptions", b"request_success")  # fmt: skip


def vllm_page(start: float | None, *values: float) -> bytes:
    lines = [b"process_start_time_seconds %f" % start] if start is not None else []
    lines += [
        b'vllm:%b_total{engine="0",model_name="m"} %g' % (name, v)
        for name, v in zip(COUNTERS, values, strict=True)
    ]
    return b"\n".join([*lines, b""])


def prompt_increase(collector: TargetCollector) -> float:
    span = collector.span(3600)
    assert span is not None
    return sum(span.increase(item.prompt) for item in collector.watched.values() if item.prompt)


def test_a_counter_that_goes_back_in_the_same_process_is_no_restart() -> None:
    """Told by the start time; where there is none, by the other counters, which go on."""
    for start in (AT - 5000, None):
        pages = [
            vllm_page(start, 1000, 500, 1000, 500, 3, 10),
            vllm_page(start, 1100, 20, 1100, 520, 3, 11),
        ]
        collector = collect((AT + 15 * i, page) for i, page in enumerate(pages))
        assert found(collector) == {"went_back": 1}
        assert collector.cold.lifecycle.life.restarts == 0
        assert collector.cold.lifecycle.phase == "warm"


def test_a_restart_is_no_counter_that_goes_back() -> None:
    for starts in ((AT - 5000, AT + 5), (None, None)):
        pages = [
            vllm_page(starts[0], 1000, 500, 1000, 500, 3, 10),
            vllm_page(starts[1], 100, 20, 100, 20, 0, 1),
        ]
        collector = collect((AT + 15 * i, page) for i, page in enumerate(pages))
        assert not found(collector)
        assert collector.cold.lifecycle.life.restarts == 1


@pytest.mark.parametrize("starts", [(AT - 5000.0, AT - 4999.8), (AT - 4999.8, AT - 5000.0), (None, None)])
def test_processes_that_answer_in_turn_are_named_and_not_restarted_for_ever(
    starts: tuple[float | None, float | None],
) -> None:
    """API servers that do not share their counters, started in the same second or without a start time."""
    collector = TargetCollector("t", ENGINES)
    for turn in range(40):
        server = turn % 2
        base = (10_000, 4_000)[server] + 100 * turn
        collector.page(
            vllm_page(starts[server], base, base / 2, base, base / 2, 3, base / 100), AT + 15 * turn
        )
    assert collector.cold.lifecycle.life.restarts <= 1
    assert collector.anomalies["alternating"] >= 35
    assert collector.anomalies["went_back"] <= 1


def test_an_older_process_behind_the_address_is_never_a_restart() -> None:
    pages = [(AT - 100, 500), (AT - 9000, 90_000), (AT - 100, 600), (AT - 9000, 90_100)]
    collector = collect(
        (AT + 15 * i, vllm_page(start, n, n / 2, n, n / 2, 1, n / 100)) for i, (start, n) in enumerate(pages)
    )
    assert collector.cold.lifecycle.life.restarts == 0
    assert collector.anomalies["alternating"] == 3
    assert prompt_increase(collector) == 200.0


def test_a_crash_loop_is_restarts_and_not_several_processes() -> None:
    collector = collect(
        (AT + 30 * i, vllm_page(AT + 30 * i - 5, *(10 * (i % 3 + 1) for _ in COUNTERS))) for i in range(12)
    )
    assert collector.anomalies["alternating"] == 0
    assert collector.cold.lifecycle.life.restarts == 11


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50)), min_size=1, max_size=40))
def test_increases_of_several_processes_are_the_sum_of_each(turns: list[tuple[int, int]]) -> None:
    """From the pages on that showed each process for the first time, in whatever order they answer."""
    starts, counts = [AT - 100.0, AT - 300.0, AT - 200.0], [1_000, 50_000, 7_000]
    collector = TargetCollector("t", ENGINES)
    expected, at = 0, AT
    # Oldest last, so that none looks newly started.
    order = [(0, 0), (2, 0), (1, 0), *turns]
    for server, grown in order:
        counts[server] += grown
        expected += grown
        at += 15
        n = counts[server]
        collector.page(vllm_page(starts[server], n, n // 2, n, n // 2, 3, n // 100), at)
    assert prompt_increase(collector) == expected
    assert collector.cold.lifecycle.life.restarts == 0


def test_workers_read_by_themselves_and_through_their_router_are_counted_twice() -> None:
    """Told by the addresses in the merged page of sglang-router."""
    merged = (
        Path(__file__).parent / "fixtures" / "engines" / "sglang-router-0.3.2" / "page.prom"
    ).read_bytes()
    for address, twice in (("127.0.0.1:31201", 1), ("127.0.0.1:31299", 0)):
        fleet = Fleet()
        worker = TargetCollector("llm/worker-0", ENGINES, fleet=fleet, address=address)
        router = TargetCollector("router", ENGINES, fleet=fleet)
        worker.page(b'sglang:num_running_reqs{model_name="m"} 1\n', AT)
        router.page(merged, AT)
        assert (worker.anomalies["counted_twice"], router.anomalies["counted_twice"]) == (0, twice)
        worker.failed(ScrapeError("timeout", "no answer"))
        router.page(merged, AT + 15)
        assert router.anomalies["counted_twice"] == twice, "a worker that is gone is counted once"


def test_every_reason_is_on_the_page_from_the_start() -> None:
    collector = collect(iter([(AT, vllm_page(None, 1, 1, 1, 1, 1, 1))]))
    shown = {s.labels[1] for s in collector.samples if s.metric is c.DATA_ANOMALIES}
    assert shown == set(c.ANOMALY_REASONS)
