"""The plugin inside vLLM, against the shapes that vLLM's own classes have from version to version."""

import importlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry

import vllm_shapes as shapes
from kvcache_exporter.plugin.counters import RankCounters, families
from kvcache_exporter.plugin.finished import Finished, read_finished
from kvcache_exporter.plugin.options import BLOCK_SIZE, FRACTION, MAX_UNCACHED, read_options
from kvcache_exporter.requests.outcome import FullHit

Load = Callable[..., Any]
_NUMBERS = count()


@pytest.fixture
def load() -> Iterator[Load]:
    """Loads the plugin under a version's classes, as vLLM would."""
    before = set(sys.modules)

    def loaded(version: str = shapes.NEWEST, *also_abstract: str) -> Any:
        sys.modules.pop("kvcache_exporter.plugin.vllm", None)
        shapes.install(version, *also_abstract)
        return importlib.import_module("kvcache_exporter.plugin.vllm").CacheOutcomeLogger

    yield loaded
    for name in set(sys.modules) - before:
        if name.startswith(("vllm", "kvcache_exporter.plugin.vllm")) and name != "vllm_shapes":
            del sys.modules[name]


def new_model() -> str:
    """A name of its own for each case: the registry is the process's, as in the engine."""
    return f"model-{next(_NUMBERS)}"


def counted(model: str, engine: str = "0", registry: CollectorRegistry = REGISTRY) -> dict[str, float]:
    """What is not 0 of this model, by name and own label; without buckets and creation times."""
    found: dict[str, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = dict(sample.labels)
            ours = sample.name.startswith("kvcache_") and labels.pop("model_name") == model
            if not ours or sample.name.endswith(("_bucket", "_created")):
                continue
            if labels.pop("engine") == engine and sample.value:
                found[" ".join([sample.name.removeprefix("kvcache_"), *labels.values()])] = sample.value
    return found


def finished(version: str, prompt: int, cached: int, **more: Any) -> Any:
    """A request that queued 0.5 s, had its first token 2 s after arrival and ended 3 s later."""
    made = shapes.finished_class(version)
    values = {
        "finish_reason": shapes.finish_reasons(version).LENGTH,
        "num_prompt_tokens": prompt,
        "num_cached_tokens": cached,
        "num_generation_tokens": 10,
        "e2e_latency": 5.0,
        "queued_time": 0.5,
        "prefill_time": 1.25,
        "decode_time": 3.0,
        **more,
    }
    return made(**{name: value for name, value in values.items() if name in made.__dataclass_fields__})


def record(logger: Any, *requests: Any) -> None:
    """As vLLM's StatLoggerManager calls it."""
    logger.record(None, shapes.iteration(*requests), mm_cache_stats=None, engine_idx=0)


@pytest.mark.parametrize("version", [v for v in shapes.VERSIONS if v != "0.11.2"])
def test_each_request_is_counted_once_by_its_outcome(load: Load, version: str) -> None:
    model = new_model()
    logger = load(version)(shapes.config(model), 0)
    logger.log_engine_initialized()
    record(logger, finished(version, 640, 624), finished(version, 640, 320))
    logger.record(None, None, engine_idx=0)
    record(logger)
    record(logger, finished(version, 640, 0), finished(version, 16, 0), finished(version, 17, 0))
    assert counted(model) == {
        "requests_total full": 1.0,
        "requests_total partial": 1.0,
        "requests_total miss": 2.0,
        "requests_total uncacheable": 1.0,
        "request_prompt_tokens_total": 1953.0,
        "request_cached_tokens_total": 944.0,
        "request_output_tokens_total": 50.0,
        "request_computed_tokens_count": 5.0,
        "request_computed_tokens_sum": 1009.0,
        "request_cached_ratio_count": 5.0,
        "request_cached_ratio_sum": 1.475,
        **{
            f"request_{name}_seconds_{part} {outcome}": value
            for outcome, n in (("full", 1), ("partial", 1), ("miss", 2), ("uncacheable", 1))
            for name, seconds in (("time_to_first_token", 2.0), ("duration", 5.0))
            for part, value in (("count", float(n)), ("sum", n * seconds))
        },
    }


def test_a_version_that_does_not_say_what_was_cached_gives_unknown_outcomes_and_no_rate(load: Load) -> None:
    model = new_model()
    record(load("0.11.2")(shapes.config(model), 0), finished("0.11.2", 640, 624))
    assert counted(model) == {
        "requests_total unknown": 1.0,
        "request_output_tokens_total": 10.0,
        "request_time_to_first_token_seconds_count unknown": 1.0,
        "request_time_to_first_token_seconds_sum unknown": 2.0,
        "request_duration_seconds_count unknown": 1.0,
        "request_duration_seconds_sum unknown": 5.0,
    }


@pytest.mark.parametrize(
    ("more", "ttft"),
    [
        ({}, 2.0),
        ({"num_preemptions": 3, "prefill_time": 1.5, "decode_time": 2.0}, 3.0),
        ({"num_generation_tokens": 1, "decode_time": 0.0, "e2e_latency": 2.0}, 2.0),
        ({"num_generation_tokens": 0, "prefill_time": -88888.0, "decode_time": 0.0}, None),
        ({"decode_time": None}, 1.75),
        ({"e2e_latency": None}, 1.75),
        ({"e2e_latency": 0.0, "decode_time": 0.0}, 1.75),
        ({"e2e_latency": -3.0}, 1.75),
        ({"e2e_latency": 2.5}, None),
        ({"decode_time": None, "queued_time": -1.0}, None),
        ({"decode_time": None, "prefill_time": math.nan}, None),
    ],
)
def test_time_to_first_token_counts_from_arrival(more: dict[str, Any], ttft: float | None) -> None:
    """Times of requests that never were scheduled, or from a clock set back, are none."""
    assert read_finished(finished(shapes.NEWEST, 640, 0, **more)).ttft_seconds == ttft


@pytest.mark.parametrize(("reason", "error"), [("ABORT", "aborted"), ("ERROR", "server_error")])
def test_requests_that_failed_are_in_no_other_metric(load: Load, reason: str, error: str) -> None:
    """What is said of their cached tokens may only be a default."""
    model, reasons = new_model(), shapes.finish_reasons(shapes.NEWEST)
    failed = finished(shapes.NEWEST, 640, 0, finish_reason=reasons[reason])
    record(load()(shapes.config(model), 0), failed)
    assert counted(model) == {f"request_errors_total {error}": 1.0}


@pytest.mark.parametrize("reason", ["STOP", "LENGTH", "REPETITION"])
def test_requests_that_ended_are_no_errors(reason: str) -> None:
    reasons = shapes.finish_reasons(shapes.NEWEST)
    assert read_finished(finished(shapes.NEWEST, 640, 0, finish_reason=reasons[reason])).error == ""


@pytest.mark.parametrize(
    ("prompt", "cached", "outcome"),
    [
        (640, 641, "unknown"),
        (640, -1, "unknown"),
        (640, 639, "unknown"),
        (641, 640, "full"),
        (None, 0, "unknown"),
    ],
)
def test_counts_that_cannot_be_are_unknown(prompt: Any, cached: int, outcome: str) -> None:
    """639 of 640 is what the decode side of a disaggregated pair says of every request."""
    model = new_model()
    request = read_finished(finished(shapes.NEWEST, prompt, cached))
    RankCounters(families(), model, "0", FullHit(), 16).count(request)
    assert {name: n for name, n in counted(model).items() if name.startswith("requests_total")} == {
        f"requests_total {outcome}": 1.0
    }


def test_ranks_of_one_process_are_uniquely_named(load: Load) -> None:
    model, plugin = new_model(), load()
    for rank in (0, 1):
        record(plugin(shapes.config(model), rank), *[finished(shapes.NEWEST, 640, 0)] * (rank + 1))
    assert counted(model, "0")["requests_total miss"] == 1.0
    assert counted(model, "1")["requests_total miss"] == 2.0


def test_all_outcomes_stand_on_the_page_before_the_first_request(load: Load) -> None:
    model = new_model()
    load()(shapes.config(model), 0).log_engine_initialized()
    labels = [
        s.labels["outcome"]
        for family in REGISTRY.collect()
        for s in family.samples
        if s.name == "kvcache_requests_total" and s.labels["model_name"] == model
    ]
    assert sorted(labels) == ["full", "miss", "partial", "uncacheable", "unknown"]


def test_the_engines_block_size_is_the_granule_and_may_be_set(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = {}
    for block, environment in ((16, {}), (64, {}), (None, {}), (16, {BLOCK_SIZE: "64"})):
        monkeypatch.delenv(BLOCK_SIZE, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        model = new_model()
        record(load()(shapes.config(model, block), 0), finished(shapes.NEWEST, 300, 256))
        name = next(name for name in counted(model) if name.startswith("requests_total"))
        outcomes[block, *environment] = name.split()[-1]
    assert outcomes == {(16,): "partial", (64,): "full", (None,): "partial", (16, BLOCK_SIZE): "full"}


def test_where_hits_of_a_hybrid_model_can_end_is_the_granule(load: Load) -> None:
    config = shapes.config(model := new_model(), 16)
    config.cache_config.cache_hit_alignment_tokens = 784
    record(load()(config, 0), finished(shapes.NEWEST, 784, 0), finished(shapes.NEWEST, 1500, 784))
    found = counted(model)
    assert (found["requests_total uncacheable"], found["requests_total full"]) == (1.0, 1.0)


def test_full_hit_comes_from_the_environment() -> None:
    assert read_options({}) == read_options({FRACTION: " ", MAX_UNCACHED: ""})
    assert read_options({FRACTION: "0.1", MAX_UNCACHED: "64"}).full_hit == FullHit(0.1, 64)
    assert read_options({}).full_hit == FullHit()


@pytest.mark.parametrize(
    ("name", "value"),
    [(FRACTION, "5%"), (FRACTION, "1.5"), (FRACTION, "nan"), (MAX_UNCACHED, "-1"), (BLOCK_SIZE, "16.5")],
)
def test_a_bad_variable_is_named_in_one_line_and_the_engine_goes_on(
    load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    model = new_model()
    logger = load()(shapes.config(model), 0)
    logger.log_engine_initialized()
    record(logger, finished(shapes.NEWEST, 640, 0))
    assert counted(model) == {}
    (line,) = [r.getMessage() for r in caplog.records if r.name == "vllm.plugins.kvcache_exporter"]
    assert "switched off" in line
    assert name in line
    assert "correct or unset it" in line


class _Hostile:
    """Stats whose fields cannot even be read."""

    @property
    def num_prompt_tokens(self) -> int:
        raise RuntimeError("moved")


def test_an_exception_switches_the_plugin_off_once_and_for_all(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    model = new_model()
    logger = load()(shapes.config(model), 0)
    for _ in range(3):
        record(logger, finished(shapes.NEWEST, 640, 0), _Hostile(), finished(shapes.NEWEST, 640, 0))
    assert counted(model)["requests_total miss"] == 1.0
    (line,) = [r.getMessage() for r in caplog.records]
    assert line.endswith("switched off, the engine goes on without it: RuntimeError: moved")


def test_statistics_without_finished_requests_switch_it_off(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    logger = load()(shapes.config(new_model()), 0)
    for _ in range(3):
        logger.record(None, object(), engine_idx=0)
    (line,) = [r.getMessage() for r in caplog.records]
    assert "AttributeError: 'object' object has no attribute 'finished_requests'" in line


def test_a_config_of_another_shape_does_no_harm(load: Load) -> None:
    logger = load()(object(), 0)
    logger.log_engine_initialized()
    record(logger, finished(shapes.NEWEST, 640, 0))
    logger.record()
    assert counted("")["requests_total miss"] >= 1.0


def test_methods_that_a_version_to_come_asks_for_do_not_keep_vllm_from_starting(load: Load) -> None:
    plugin = load(shapes.NEWEST, "record_something_new")
    logger = plugin(shapes.config(new_model()), 0, something="new")
    logger.record_something_new(1, two=3)
    logger.log()
    logger.record_sleep_state(1, 2)


_ANYTHING: st.SearchStrategy[Any] = (
    st.sampled_from([None, True, -1, 0, 1, 2**70, -0.5, math.nan, math.inf, -math.inf, "", "x", [1]])
    | st.integers(0, 2000)
    | st.floats(0, 100)
)


@given(
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(
        ("num_prompt_tokens", "num_cached_tokens", "num_generation_tokens", "e2e_latency", "queued_time",
         "prefill_time", "decode_time", "finish_reason"), _ANYTHING)), max_size=20)
)  # fmt: skip
def test_whatever_the_stats_hold_each_request_is_counted_exactly_once(found: list[dict[str, Any]]) -> None:
    registry = CollectorRegistry()
    counters = RankCounters(families(registry), "tiny", "0", FullHit(), 16)
    for values in found:
        counters.count(read_finished(type("Stats", (), values)()))
    totals = counted("tiny", registry=registry)
    assert sum(n for name, n in totals.items() if name.startswith("requests_total")) == len(found)
    assert totals.get("request_cached_tokens_total", 0.0) <= totals.get("request_prompt_tokens_total", 0.0)
    assert not any(math.isnan(value) or value < 0 for value in totals.values())


def test_counting_a_request_costs_microseconds(load: Load) -> None:
    """About 4 here (`python -m benchmarks plugin`); the bound allows for a machine that others use, too."""
    logger = load()(shapes.config(new_model()), 0)
    requests = [finished(shapes.NEWEST, 640, cached) for cached in (0, 320, 624)] * 1000
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        record(logger, *requests)
        best = min(best, (time.process_time() - start) / len(requests))
    assert best < 50e-6


def test_a_request_of_nothing_is_unknown() -> None:
    assert read_finished(object()) == Finished(None, None, None, None, None, "")
