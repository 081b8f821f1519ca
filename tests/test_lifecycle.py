"""Cold starts: every sign of a restart counts once, recovery ends the cold time, histograms split by it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.model import Distribution
from kvcache_exporter.scrape.cold import ColdWatch, forgotten
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.scrape.lifecycle import ColdRule, Lifecycle, Signs, Traffic
from kvcache_exporter.scrape.phases import PhaseSplitter

RECORDINGS = Path(__file__).parent / "fixtures" / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())
NONE = Traffic(0.0, 0.0)


def signs(
    start: float | None = None,
    *,
    went_back: bool = False,
    pids: dict[str, frozenset[str]] | None = None,
    model: str = "m",
    untouched: bool = False,
) -> Signs:
    return Signs(start, went_back, pids or {}, frozenset([model]), {"requests": 0.0 if untouched else 1.0})


def replayed(name: str) -> TargetCollector:
    collector = TargetCollector(name, ENGINES)
    for page in sorted((RECORDINGS / name).glob("*.prom")):
        collector.page(page.read_bytes(), float(re.findall(r"_(\d+)\.prom", page.name)[0]))
    return collector


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_restart_is_seen_once(name: str) -> None:
    """By counters, by start time, or where neither moves (kept multiprocess files) by the process id."""
    pages = sorted(page.name for page in (RECORDINGS / name).glob("*.prom"))
    restarts = any(page.startswith(("500", "501", "502", "060_shared-restart")) for page in pages)
    life = replayed(name).cold.lifecycle.life
    assert life.restarts == restarts
    if name == "sglang-0.5.8-userdir":
        assert life.recent[-1].reason == "new process id"
    if name == "vllm-0.32.0":
        assert life.recent[-1].reason == "start time"


RESETS = {"vllm-0.10.2", "vllm-0.13.0", "vllm-0.16.0", "vllm-0.20.0", "vllm-0.29.0", "vllm-0.32.0",
          "sglang-0.5.18-a", "sglang-0.5.23-a"}  # fmt: skip
"""Recordings in which somebody emptied the cache through the engine's web server, once each."""


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_reset_of_the_cache_is_counted_and_is_a_cold_start(name: str) -> None:
    collector = replayed(name)
    life = collector.cold.lifecycle.life
    assert life.resets == (name in RESETS)
    assert [start.reason for start in life.recent].count("cache reset") == (name in RESETS)
    shown = [s.value for s in collector.samples if s.metric is c.CACHE_RESETS]
    assert shown == [float(name in RESETS)]


def _emptied_page(tokens: int, resets: int) -> bytes:
    calls = b'http_requests_total{handler="/reset_prefix_cache",method="POST",status="2xx"} %d\n' % resets
    return (
        b'vllm:prompt_tokens_total{model_name="m"} %d\nvllm:prompt_tokens_cached_total{model_name="m"} %d\n'
        % (tokens, tokens // 2)
    ) + (calls if resets else b"")


def test_a_reset_of_the_cache_makes_a_warm_target_cold_and_is_no_restart() -> None:
    """The engine's age goes on; the cache has recovered at the share of what it showed before."""
    collector = TargetCollector("t", ENGINES)
    for minute, (tokens, resets) in enumerate([(90_000, 0), (95_000, 0), (95_100, 1), (100_100, 1)]):
        collector.page(_emptied_page(tokens, resets), 60.0 * minute)
        life = collector.cold.lifecycle.life
        assert (life.phase, life.resets) == (("warm", 0), ("warm", 0), ("cold", 1), ("warm", 1))[minute]
    assert (life.restarts, life.began, life.warmup) == (0, None, 60.0)
    assert [s.value for s in collector.samples if s.metric is c.TARGET_RESETS] == []


def test_kv_events_say_better_than_the_web_server_when_the_cache_was_emptied() -> None:
    """Then calls of the endpoint, which may have failed, are not counted a second time."""
    cleared = iter([4, 4, 4, 5, 0, 0, 1])
    collector = TargetCollector("t", ENGINES, cleared=lambda: next(cleared))
    resets = []
    for minute, calls in enumerate([0, 1, 1, 1, 1, 1]):
        collector.page(_emptied_page(90_000 + minute, calls), 60.0 * minute)
        resets.append(collector.cold.lifecycle.life.resets)
    assert resets == [0, 0, 1, 1, 1, 2], "events that begin anew are no reset"


def test_signs_that_belong_to_one_restart_count_once() -> None:
    """SGLang's counters are not on the first pages of a new process and go back only when they return."""
    life = Lifecycle()
    life.observe(signs(pids={"r": frozenset("1")}), 0.0)
    assert life.observe(signs(pids={"r": frozenset("2")}, untouched=True), 10.0)
    assert not life.observe(signs(pids={"r": frozenset("2")}, went_back=True), 20.0)
    assert life.life.restarts == 1
    assert life.observe(signs(went_back=True), 30.0), "the next one is another restart"


def test_ranks_that_show_up_one_after_the_other_are_no_restart() -> None:
    life = Lifecycle()
    life.observe(signs(pids={"rank 0": frozenset("1")}), 0.0)
    assert not life.observe(signs(pids={"rank 0": frozenset("1"), "rank 1": frozenset("2")}), 10.0)


def test_another_model_on_the_same_address_is_a_new_life() -> None:
    life = Lifecycle()
    life.observe(signs(model="a"), 0.0)
    assert life.observe(signs(model="b"), 10.0)


def test_a_long_running_engine_met_for_the_first_time_is_warm_and_a_young_one_cold() -> None:
    old, young, fresh = Lifecycle(), Lifecycle(), Lifecycle()
    old.observe(signs(start=0.0), 100_000.0)
    young.observe(signs(start=99_990.0), 100_000.0)
    fresh.observe(signs(untouched=True), 100_000.0)
    assert (old.phase, young.phase, fresh.phase) == ("warm", "cold", "cold")
    assert (old.age(100_000.0), young.age(100_000.0)) == (100_000.0, 10.0)
    assert Lifecycle().age(5.0) is None


def test_cold_ends_at_the_share_of_the_reference_or_at_the_longest_time() -> None:
    rule = ColdRule(recovered_ratio=0.8, max_duration=600.0)
    for reference, ratio, at, warm in (
        (0.5, 0.39, 100.0, False),
        (0.5, 0.40, 100.0, True),
        (None, 0.9, 100.0, False),
        (None, 0.0, 600.0, True),
        (0.5, 0.0, 599.0, False),
    ):
        life = Lifecycle(rule)
        life.observe(signs(untouched=True), 0.0)
        traffic = Traffic(10_000 * ratio, 10_000)
        assert life.judge(traffic, traffic, reference, at) == warm
        assert life.life.warmup == (at if warm else None)


def test_one_lucky_request_is_no_recovery() -> None:
    life = Lifecycle()
    life.observe(signs(untouched=True), 0.0)
    assert not life.judge(Traffic(500, 500), Traffic(500, 500), 0.5, 10.0)


def test_without_replicas_the_last_life_is_the_measure() -> None:
    life = Lifecycle()
    life.observe(signs(start=0.0), 100_000.0)
    life.judge(NONE, Traffic(5_000, 10_000), None, 100_000.0)
    life.observe(signs(start=100_010.0), 100_020.0)
    assert not life.judge(Traffic(3_900, 10_000), NONE, None, 100_030.0)
    assert life.judge(Traffic(4_000, 10_000), NONE, None, 100_040.0)
    assert life.life.warmup == 30.0


def test_only_warm_replicas_of_the_same_model_are_a_measure() -> None:
    fleet = Fleet()
    fleet.report("a", ["m"], 600, 1000, warm=True)
    fleet.report("b", ["m"], 0, 3000, warm=True)
    fleet.report("c", ["m"], 0, 9000, warm=False)
    fleet.report("d", ["n"], 900, 1000, warm=True)
    assert fleet.hit_ratio(["m"], but="x") == 600 / 4000
    assert fleet.hit_ratio(["m"], but="b") == 0.6
    fleet.forget("a")
    fleet.forget("b")
    assert fleet.hit_ratio(["m"], but="x") is None


_steps = st.lists(
    st.tuples(st.lists(st.integers(0, 5), min_size=3, max_size=3), st.booleans(), st.integers(0, 9)),
    max_size=20,
)


@given(_steps)
def test_phases_of_a_histogram_add_up_to_what_the_engine_shows(
    steps: list[tuple[list[int], bool, int]],
) -> None:
    """And no phase ever loses what it had, but by a restart of the engine."""
    splitter, raw, phase = PhaseSplitter(), [0.0, 0.0, 0.0], "cold"
    gained = {"cold": [0.0] * 3, "warm": [0.0] * 3}
    for increments, turns, restart in steps:
        if restart == 0:
            raw, gained, phase = [0.0] * 3, {"cold": [0.0] * 3, "warm": [0.0] * 3}, "cold"
            splitter.restart()
        for bucket, increment in enumerate(increments):
            for above in range(bucket, 3):
                raw[above] += increment
                gained[phase][above] += increment
        shown = Distribution((1.0, 2.0), tuple(raw), raw[-1] * 1.5)
        parts = dict(splitter.split("k", shown, phase))  # type: ignore[arg-type]
        for name, values in gained.items():
            assert list(parts[name].counts if name in parts else [0.0] * 3) == values
        if turns:
            splitter.turn("k", shown, phase)  # type: ignore[arg-type]
            phase = "warm" if phase == "cold" else "cold"


def test_ttft_of_a_recorded_restart_is_split_and_its_parts_add_up() -> None:
    collector = replayed("sglang-0.5.18-a")
    parts = [s.value for s in collector.samples if s.metric is c.ENGINE_TTFT]
    assert all(isinstance(part, Distribution) for part in parts)
    last = max((RECORDINGS / "sglang-0.5.18-a").glob("*.prom")).read_text()
    counts = re.findall(r"^sglang:time_to_first_token_seconds_count\{.*\} (\S+)$", last, re.MULTILINE)
    assert sum(part.counts[-1] for part in parts if isinstance(part, Distribution)) == sum(map(float, counts))


def test_a_restart_of_the_exporter_goes_on_with_the_same_life() -> None:
    first = replayed("vllm-0.32.0")
    data = first.cold.changes(1.0)
    assert data is not None
    assert first.cold.changes(2.0) is None, "nothing changed"
    assert first.cold.changes(100_000.0) is not None, "once a day it is written all the same"
    second = TargetCollector("vllm-0.32.0", ENGINES)
    second.cold.restore(data)
    page = max((RECORDINGS / "vllm-0.32.0").glob("*.prom"))
    second.page(page.read_bytes(), 1_795_950_970.0)
    wanted = (c.TARGET_RESTARTS, c.WARM, c.WARMUP_DURATION, c.ENGINE_TTFT)

    def of(collector: TargetCollector) -> list[object]:
        return [s for s in collector.samples if s.metric in wanted]

    assert of(second) == of(first)


def test_damaged_state_is_as_if_there_were_none_and_old_state_is_dropped() -> None:
    watch = ColdWatch("t", ColdRule(), Fleet())
    watch.restore(b"{broken")
    assert watch.lifecycle.life.restarts == 0
    week = 7 * 86400.0
    saved = {"old": watch.snapshot(0.0), "new": watch.snapshot(week), "bad": b"x"}
    assert forgotten(saved, week + 1) == ["old", "bad"]


def test_the_count_of_restarts_stays_on_the_page_while_the_target_is_down() -> None:
    """A counter that vanishes during the restart would hide the very increase it is for."""
    collector = replayed("vllm-0.32.0")
    collector.failed(ScrapeError("connection", "refused"))
    left = {sample.metric: sample.value for sample in collector.samples}
    assert left[c.TARGET_RESTARTS] == 1.0
    assert left[c.TARGET_RESETS] == 1.0
    assert not {c.WARM, c.AGE, c.ENGINE_TTFT, c.PROMPT_TOKENS} & left.keys()
