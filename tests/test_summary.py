"""The summary: made of what /metrics is made of, exact where it adds up, null without traffic, bounded."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import BEGAN, Demo, Watched, vllm_page
from kvcache_alerts.pressure import PREEMPTION_SPIKE, USAGE_HIGH
from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.events.source import EventOptions, EventSource
from kvcache_exporter.model import OUTCOMES, Distribution, RequestRecord
from kvcache_exporter.requests.outcome import FullHit, classify
from kvcache_exporter.requests.tally import Money
from kvcache_exporter.summary import costs, schema, tables
from kvcache_exporter.summary import gains as gains_module
from kvcache_exporter.summary.blocks import Blocks
from kvcache_exporter.summary.gains import FLEET, MOST_EDGES, MOST_MODELS, OTHER, Gains, Series
from kvcache_exporter.summary.recorder import Recorder
from kvcache_exporter.summary.trail import RESOLUTION, Trail

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def played() -> Watched:
    """The demo up to a moment at which vLLM preempts; SGLang has restarted."""
    return Demo().play(150)


def test_ratios_and_rates_are_those_of_the_metrics(played: Watched) -> None:
    models = {scope.model_name: scope for scope in played.summary().models.shown}
    compared = 0
    for name, model in (("vllm", "tiny"), ("sglang", "tiny-llama")):
        engines = models[model].engines
        assert engines is not None
        for sample in played.collectors[name].samples:
            if sample.metric.area == "Windows":
                field = sample.metric.name.removeprefix(c.PREFIX)
                assert getattr(engines.windows[sample.labels[-1]], field) == sample.value
                compared += 1
        requests = models[model].requests
        assert requests is not None
        groups = [s for s in played.logs[name].ledger.samples() if s.metric is c.REQUESTS]
        assert sum(requests.outcomes["1h"].values()) == sum(s.value for s in groups if type(s.value) is float)
    assert compared >= 20


def test_outcomes_and_ttft_equal_the_records_of_the_log() -> None:
    demo = Demo()
    watched = demo.play(150)
    log = next(engine for engine in demo.engines if engine.name == "vllm")
    lines = [json.loads(line) for at, line in log.lines if at <= 150]
    outcomes: Counter[str] = Counter()
    expected: dict[str, list[float]] = {}
    for line in lines:
        usage = line["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        outcome = classify(usage["prompt_tokens"], cached, 16, 0, FullHit())
        outcomes[outcome] += 1
        if line["ttft_ms"] is not None:
            expected.setdefault(outcome, []).append(line["ttft_ms"] / 1000)
    scope = next(s for s in watched.summary().models.shown if s.model_name == "tiny")
    assert scope.requests is not None
    assert scope.requests.outcomes["5m"] == {o: outcomes[o] for o in OUTCOMES}
    for name, seconds in expected.items():
        latency = scope.requests.ttft["5m"][name]
        assert latency.count == len(seconds) == sum(latency.counts)
        for place, bound in enumerate(latency.edges_seconds):
            assert sum(latency.counts[: place + 1]) == sum(value <= bound for value in seconds)
        p95 = sorted(seconds)[max(0, -(-len(seconds) * 95 // 100) - 1)]
        assert latency.estimates.p95_at_most_seconds == next(e for e in latency.edges_seconds if e >= p95)


def test_the_document_is_what_its_types_say_and_its_numbers_survive_json(played: Watched) -> None:
    summary = played.summary("tiny")
    assert msgspec.json.decode(msgspec.json.encode(summary), type=schema.Summary) == summary
    assert summary.history.model_name == "tiny"
    lengths = {len(getattr(summary.history, name)) for name in ("at", *schema.COLUMNS)}
    # The model is known from its first page on, in second 2.
    assert lengths == {149}
    assert summary.history.token_hit_ratio[0] is None
    newest = summary.models.shown[[s.model_name for s in summary.models.shown].index("tiny")]
    assert newest.engines is not None
    assert summary.history.token_hit_ratio[-1] == pytest.approx(
        newest.engines.windows["1m"].token_hit_ratio, rel=1e-4
    )
    assert max(v for v in summary.history.preemptions_per_second if v is not None) > 0.5
    assert max(v for v in summary.history.usage_ratio if v is not None) > 0.9


def test_no_such_model_is_none(played: Watched) -> None:
    found = played.recorder.summary(
        played.now,
        played.collectors.values(),
        [],
        [],
        model="nope",
        exporter=played.summary().exporter,
        problems=(),
    )
    assert found is None


def two_replicas() -> Watched:
    """Over 60 s: a 900 of 1,000 prompt tokens cached, b 900 of 9,000; c is down, d idle."""
    watched = Watched()
    for at, a, b in ((0, (0, 0), (0, 0)), (60, (1000, 900), (9000, 900))):
        watched.collector("a").page(vllm_page(*a, usage=0.2), BEGAN + at)
        watched.collector("b").page(vllm_page(*b, usage=0.9, waiting=7, preemptions=at / 20), BEGAN + at)
        watched.collector("c").failed(ScrapeError("connection", "refused"))
        watched.collector("d").page(vllm_page(5, 5, model="idle"), BEGAN + at)
        watched.tick(BEGAN + at)
    return watched


def test_tokens_are_added_up_and_then_divided() -> None:
    summary = two_replicas().summary()
    fleet = summary.fleet.engines
    assert fleet is not None
    window = fleet.windows["1m"]
    assert (window.seconds, window.token_hit_ratio, window.prompt_tokens) == (60, 0.18, 10_000)
    assert (fleet.targets, fleet.targets_up, fleet.usage_ratio, fleet.waiting_requests) == (4, 3, 0.9, 7)
    assert window.preemptions_per_second == pytest.approx(3 / 60)
    assert window.evicted_tokens_per_second is None
    assert summary.fleet.requests is None


def test_no_traffic_is_null_and_never_zero() -> None:
    models = {scope.model_name: scope for scope in two_replicas().summary().models.shown}
    idle = models["idle"].engines
    assert idle is not None
    for window in idle.windows.values():
        assert (window.token_hit_ratio, window.request_hit_ratio, window.gap) == (None, None, None)
    assert idle.ttft == {"5m": {}, "1h": {}}
    empty = Watched().summary()
    assert (empty.fleet.engines, empty.fleet.requests, empty.models.total) == (None, None, 0)


def test_a_router_is_a_target_and_no_replica() -> None:
    watched = two_replicas()
    page = Path(__file__).parent / "fixtures" / "engines" / "dynamo-frontend" / "page.prom"
    before = watched.summary()
    watched.collector("router").page(page.read_bytes(), BEGAN + 60)
    watched.tick(BEGAN + 60)
    after = watched.summary()
    assert (after.fleet.engines, after.replicas, after.models) == (
        before.fleet.engines, before.replicas, before.models,
    )  # fmt: skip
    assert after.data_quality.targets == before.data_quality.targets + 1


def test_the_worst_replica_computed_most_beyond_the_common_hit_rate() -> None:
    replicas = two_replicas().summary().replicas
    assert [replica.target for replica in replicas.shown] == ["b", "d", "a"]
    worst, best = replicas.shown[0], replicas.shown[-1]
    assert worst.excess_tokens_per_second == pytest.approx((0.18 * 9000 - 900) / 60)
    assert best.excess_tokens_per_second == pytest.approx((0.18 * 1000 - 900) / 60)
    assert replicas.shown[1].excess_tokens_per_second is None


def test_replicas_under_pressure_are_named_whatever_their_place_among_the_worst() -> None:
    watched = Watched()
    for at in (0, 300):
        for name, (preemptions, usage, waiting) in {
            "calm": (15, 0.95, 9), "idle": (0, 1.0, 0), "worse": (60, 0.5, 0), "bad": (16, 0.96, 2),
            "queue": (0, 0.99, 3),
        }.items():  # fmt: skip
            page = vllm_page(at, at, preemptions=preemptions * at / 300, usage=usage, waiting=waiting)
            watched.collector(name).page(page, BEGAN + at)
        watched.tick(BEGAN + at)
    pressure = watched.summary().pressure
    assert pressure.preempting == schema.Listed(total=2, shown=["worse", "bad"])
    assert pressure.full == schema.Listed(total=2, shown=["queue", "bad"])


def test_pressure_begins_where_the_alerts_see_it() -> None:
    floors = {
        (alert.name, parameter.name): parameter.default
        for alert in (PREEMPTION_SPIKE, USAGE_HIGH)
        for parameter in alert.parameters
    }
    assert float(floors["KVCachePreemptionSpike", "floor"]) == tables.PREEMPTING
    assert float(floors["KVCacheUsageHigh", "usage"]) == tables.FULL
    assert float(floors["KVCacheUsageHigh", "waiting"]) == 0


def test_a_target_that_is_down_is_told_with_its_error() -> None:
    quality = two_replicas().summary(problems=["dns: no such name"]).data_quality
    assert (quality.targets, quality.down.total) == (4, 1)
    assert quality.down.shown == [schema.DownTarget(target="c", error="connection: refused")]
    assert quality.discovery_problems.shown == ["dns: no such name"]


def test_a_target_that_was_not_scraped_yet_is_not_down() -> None:
    watched = two_replicas()
    watched.collector("new")
    quality = watched.summary().data_quality
    assert (quality.targets, quality.not_scraped, quality.down.total) == (5, 1, 1)


def test_the_history_ends_with_the_figures_beside_it() -> None:
    watched = two_replicas()
    watched.collector("a").page(vllm_page(2000, 1900), BEGAN + 70)
    watched.now = BEGAN + 72
    summary = watched.summary()
    assert summary.fleet.engines is not None
    assert summary.history.at == [BEGAN, BEGAN + 60, BEGAN + 72]
    assert summary.history.token_hit_ratio[1:] == [
        0.18,
        pytest.approx(summary.fleet.engines.windows["1m"].token_hit_ratio, rel=1e-4),
    ]
    watched.tick(BEGAN + 75)
    assert watched.summary().history.at == [BEGAN, BEGAN + 60, BEGAN + 75]


def test_a_key_with_more_cached_than_prompt_tokens_is_left_out_and_makes_the_model_suspect() -> None:
    watched = Watched()
    for at, a, b in ((0, (0, 0), (0, 0)), (60, (1000, 500), (1000, 1500))):
        watched.collector("a").page(vllm_page(*a), BEGAN + at)
        watched.collector("b").page(vllm_page(*b), BEGAN + at)
        watched.tick(BEGAN + at)
    summary = watched.summary()
    assert summary.fleet.engines is not None
    assert summary.fleet.engines.windows["1m"].token_hit_ratio == 0.5
    assert summary.fleet.engines.suspect == ["cached_exceeds_prompt"]
    assert summary.data_quality.anomalies == [
        schema.Anomaly(reason="cached_exceeds_prompt", last_hour=1, total=1)
    ]
    watched.tick(BEGAN + 3700)
    watched.tick(BEGAN + 7400)
    later = watched.summary()
    assert later.fleet.engines is not None
    assert later.fleet.engines.suspect == []
    assert later.data_quality.anomalies[0].total == 1


def test_targets_that_miss_the_same_families_are_one_line() -> None:
    quality = two_replicas().summary().data_quality
    assert (quality.incomplete_targets, quality.families.total) == (3, 1)
    line = quality.families.shown[0]
    assert (line.targets, line.target, line.deprecated) == (3, "a", [])
    assert "num_requests_running" in line.missing


def test_engines_that_count_lookups_are_suspect() -> None:
    page = (DOCS.parent / "tests/fixtures/engines/vllm-0.10.2/page.prom").read_bytes()
    watched = Watched()
    watched.collector("old").page(page, BEGAN)
    watched.tick(BEGAN)
    fleet = watched.summary().fleet.engines
    assert fleet is not None
    assert (fleet.hit_basis, fleet.suspect) == (["lookup"], ["lookup_basis"])


def test_cold_replicas_come_first_with_their_age_and_recovery(played: Watched) -> None:
    cold = played.summary().cold
    starts = {start.target: start for start in cold.starts.shown}
    assert cold.cold == sum(start.phase == "cold" for start in starts.values())
    assert [start.phase for start in cold.starts.shown] == sorted(start.phase for start in cold.starts.shown)
    restarted = played.collectors["sglang"].cold.lifecycle
    assert restarted.life.restarts == 1
    assert starts["sglang"].age_seconds == restarted.age(played.now)
    assert starts["sglang"].warmup_seconds == restarted.life.warmup


def test_recovery_is_a_share_of_the_rate_at_which_it_counts_as_warm() -> None:
    watched = Watched()
    for at in range(0, 1000, 50):
        watched.collector("warm").page(vllm_page(100 * at, 80 * at), BEGAN + at)
        if at >= 900:
            watched.collector("new").page(vllm_page(100 * (at - 900), 16 * (at - 900)), BEGAN + at)
        watched.tick(BEGAN + at)
    start = watched.summary().cold.starts.shown[0]
    assert (start.target, start.phase, start.reason) == ("new", "cold", "first seen")
    assert start.recovery_ratio == pytest.approx(0.16 / (0.8 * 0.8))
    watched.collector("new").page(vllm_page(90_000, 80_000), BEGAN + 1000)
    watched.tick(BEGAN + 1000)
    start = watched.summary().cold.starts.shown[0]
    assert (start.phase, start.recovery_ratio, start.warmup_seconds) == ("warm", None, 100)


def test_ttft_of_a_restarted_engine_counts_in_full_though_it_is_above_the_old_count() -> None:
    watched = Watched()
    ttft = (
        'vllm:time_to_first_token_seconds_bucket{{model_name="m",le="+Inf"}} {n}\n'
        'vllm:time_to_first_token_seconds_bucket{{model_name="m",le="1.0"}} {n}\n'
        'vllm:time_to_first_token_seconds_sum{{model_name="m"}} {n}\n'
        "process_start_time_seconds {start}\n"
    )
    for second, n, start in ((0, 10, BEGAN - 5000), (15, 10, BEGAN - 5000), (30, 30, BEGAN + 20)):
        watched.collector("a").page(ttft.format(n=n, start=start).encode(), BEGAN + second)
        watched.tick(BEGAN + second)
    engines = watched.summary().models.shown[0].engines
    assert engines is not None
    assert {phase: latency.count for phase, latency in engines.ttft["5m"].items()} == {"cold": 30}


def record(group: str, prompt: int, cached: int | None, model: str = "m", ttft: float = 0.1) -> RequestRecord:
    return RequestRecord(prompt, cached, ttft_seconds=ttft, model_name=model, group=group)


def test_worst_groups_are_those_with_most_computed_tokens() -> None:
    watched = Watched()
    watched.ledger("app").add([record("a", 1, 1)])
    watched.tick(BEGAN + 1)
    watched.ledger("app").add([record("a", 1000, 990), record("b", 2000, 0), record("c", 9000, None)])
    watched.tick(BEGAN + 60)
    groups = watched.summary().groups
    assert [(g.group, g.requests, g.uncached_tokens) for g in groups.shown] == [("b", 1, 2000), ("a", 1, 10)]
    requests = watched.summary().fleet.requests
    assert requests is not None
    assert requests.outcomes["5m"] == {"full": 2, "partial": 0, "miss": 1, "uncacheable": 0, "unknown": 1}
    assert requests.windows["1m"].request_hit_ratio == 0.5
    assert requests.windows["1m"].gap == pytest.approx(990 / 3000 - 0.5)


counts = st.lists(st.integers(0, 50), min_size=3, max_size=3)


@given(st.lists(st.tuples(st.booleans(), counts), min_size=1, max_size=12), st.booleans())
def test_gains_add_up_what_each_life_of_a_source_counted(
    lives: list[tuple[bool, list[int]]], known: bool
) -> None:
    """Each step adds counts; before it the source may restart, which shows if any count falls."""
    gains, series = Gains(0.0), Series(FLEET, "request", "miss", (1.0, 2.0))
    shown, expected = [0, 0, 0], [0, 0, 0]
    for number, (restart, added) in enumerate(lives):
        base = [0, 0, 0] if restart else shown
        new = [b + a for b, a in zip(base, added, strict=True)]
        visible = any(n < s for n, s in zip(new, shown, strict=True))
        before = [0, 0, 0] if visible else shown
        if number or known:
            expected = [e + n - b for e, n, b in zip(expected, new, before, strict=True)]
        shown = new
        gains.feed(number + 1.0, "source", series, list(map(float, new)), known=known)
        gains.commit(number + 1.0)
    assert gains.counts("5m", series) == expected


def test_histograms_of_other_edges_are_merged_where_both_have_an_edge() -> None:
    gains = Gains(0.0)
    gains.feed(1.0, "a", Series("m", "engine", "warm", (0.1, 1.0)), [1, 2, 3], known=True)
    gains.feed(1.0, "b", Series("m", "engine", "warm", (0.5, 1.0)), [10, 20, 30], known=True)
    gains.commit(1.0)
    assert gains.distribution("1h", "m", "engine", "warm") == Distribution((1.0,), (33.0, 66.0), 0.0)


def test_edges_and_models_are_bounded() -> None:
    watched = Watched()
    watched.ledger("app").add([record("g", 10, 0, model=f"m{number}") for number in range(100)])
    watched.tick(BEGAN + 1)
    watched.tick(BEGAN + 2)
    summary = watched.summary()
    names = {scope.model_name for scope in summary.models.shown}
    assert (len(names), OTHER in names) == (MOST_MODELS + 1, True)
    other = next(scope for scope in summary.models.shown if scope.model_name == OTHER)
    assert other.requests is not None
    assert other.requests.outcomes["1h"]["miss"] == 100 - MOST_MODELS
    gains = Gains(0.0)
    for edges in (tuple(map(float, range(65))), (1.0,), (2.0,), (3.0,)):
        gains.feed(1.0, "a", Series("m", "engine", "warm", edges), [1.0] * (len(edges) + 1), known=True)
    assert {series.edges for series in gains._vectors} == {(1.0,), (2.0,)}


def test_the_most_that_windows_hold_is_what_the_documentation_says() -> None:
    gains = Gains(0.0)
    for scope in range(MOST_MODELS + 2):
        wanted = [("outcomes", "", 5, 1), ("anomalies", "", len(c.ANOMALY_REASONS), 1)]
        wanted += [("costs", "", len(costs.counts_of(Money())), 1)]
        wanted += [("blocks", "", len(Blocks(EventSource(EventOptions("a", "tcp://127.0.0.1:1"))).counts), 1)]
        wanted += [("request", outcome, len(c.SECONDS_BUCKETS) + 1, 1) for outcome in OUTCOMES]
        wanted += [("engine", phase, MOST_EDGES + 1, 5) for phase in c.PHASES]
        for kind, name, length, layouts in wanted:
            for layout in range(layouts):
                series = Series(
                    str(scope), kind, name, tuple(layout + edge / 99 for edge in range(length - 1))
                )
                gains.feed(1.0, "a", series, [1.0] * length, known=True)
    gains.commit(1.0)
    windows = len(gains._history._rows[-1][1]) * 8 * 2 * gains_module.RESOLUTION
    trails = (MOST_MODELS + 2) * len(schema.COLUMNS) * 8 * 2 * RESOLUTION
    assert 28e6 < windows + trails < 29e6
    assert "at most 29 MB with 32 models" in (DOCS / "http.md").read_text()


def test_an_hour_and_more_at_any_pace_keeps_the_stated_rows() -> None:
    recorder, watched = Recorder(BEGAN), Watched()
    watched.recorder = recorder
    for second in range(5000):
        if second % 50 == 0:
            watched.ledger("app").add([record("g", 10, 0)])
        watched.recorder.tick(BEGAN + second, (), [watched.ledger("app")], [])
    rows = recorder._gains._history._rows
    assert 120 <= len(rows) <= 2 * gains_module.RESOLUTION
    assert max(len(row) for _, row in rows) <= 2 * 396
    at = recorder._trails[FLEET].at
    assert RESOLUTION <= len(at) <= 2 * RESOLUTION
    assert at == sorted(at)
    assert at[-1] - at[0] == pytest.approx(3600, abs=16)
    assert all(later - earlier <= 30 for earlier, later in pairwise(at))


def test_a_trail_keeps_the_newest_points_all_and_five_digits() -> None:
    trail = Trail(2)
    for second in range(1000):
        trail.add(float(second), [second / 7, None])
    assert trail.at[-50:] == [float(second) for second in range(950, 1000)]
    values, none = trail.columns()
    assert values[-1] == 142.71
    assert set(none) == {None}


def test_the_documented_schema_is_the_one_in_force(golden: Any) -> None:
    text = json.dumps(msgspec.json.schema(schema.Summary), indent=1) + "\n"
    golden(DOCS / "summary.schema.json", text)
    assert f"`schema` is {schema.VERSION}" in (DOCS / "http.md").read_text()
