"""KV events in the summary: what recorded engines published, by tier, model and replica, and null without."""

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet import BEGAN, Watched, vllm_page
from kvcache_exporter import catalogue as c
from kvcache_exporter.events.source import EventOptions, EventSource
from kvcache_exporter.summary import schema
from kvcache_exporter.summary.figures import Events, EventWindow

FIXTURES = Path(__file__).parent / "fixtures" / "events"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FIXTURES / "expected.json").read_text())
VLLM, SGLANG = "vllm-0.10.2", "sglang-0.5.23-hicache"
STEP, STEPS = 15, 20


def source(target: str, model_name: str = "") -> EventSource:
    return EventSource(EventOptions(target, "tcp://127.0.0.1:1", model_name=model_name))


def payloads(name: str) -> list[bytes]:
    with gzip.open(FIXTURES / f"{name}.jsonl.gz") as lines:
        return [base64.b64decode(json.loads(line)["payload"]) for line in lines]


def in_steps(name: str) -> list[Sequence[bytes]]:
    every = payloads(name)
    size = -(-len(every) // STEPS)
    return [every[start : start + size] for start in range(0, STEPS * size, size)]


@pytest.fixture(scope="module")
def played() -> Watched:
    """Five minutes of two recordings: a serves `tiny`, as its page says, b `llama`, as is configured."""
    watched = Watched(events=[source("a"), source("b", "llama"), source("silent")])
    watched.tick(BEGAN)
    steps = list(zip(in_steps(VLLM), in_steps(SGLANG), strict=True))
    for number, parts in enumerate(steps, 1):
        now = BEGAN + STEP * number
        watched.collector("a").page(vllm_page(100 * number, 50 * number, model="tiny"), now)
        watched.collector("silent").page(vllm_page(100 * number, 0, model="tiny"), now)
        for each, batches in zip(watched.events, parts, strict=False):
            assert all(each.ledgers[0].add(payload) for payload in batches)
        watched.tick(now)
    assert watched.now == BEGAN + 300
    return watched


def of_model(watched: Watched, name: str) -> Events:
    scope = next(each for each in watched.summary().models.shown if each.model_name == name)
    assert scope.events is not None
    return scope.events


def test_blocks_of_a_window_are_those_of_the_recordings(played: Watched) -> None:
    fleet = played.summary().fleet.events
    assert fleet is not None
    window, vllm, sglang = fleet.windows["5m"], EXPECTED[VLLM], EXPECTED[SGLANG]
    for rates, kind in (
        (window.stored_blocks_per_second, "stored"),
        (window.evicted_blocks_per_second, None),
    ):
        name = kind or "removed"
        device, host = (vllm[f"{name}_device"] + sglang[f"{name}_device"], sglang[f"{name}_host"])
        assert rates == {"device": pytest.approx(device / 300), "host": pytest.approx(host / 300)}
    rewarmed = vllm["rewarmed"] + sglang["rewarmed"]
    assert window.rewarmed_blocks_per_second == pytest.approx(rewarmed / 300)
    assert window.rewarmed_ratio == pytest.approx(
        rewarmed / (vllm["stored_device"] + sglang["stored_device"])
    )
    assert fleet.resident_blocks == {
        "device": vllm["resident_device"] + sglang["resident_device"],
        "host": sglang["resident_host"],
    }
    assert (fleet.sources, fleet.sources_heard, fleet.followed_ratio, window.lost_batches) == (3, 2, 1.0, 0)


def test_events_belong_to_the_model_of_the_target_or_of_the_configuration(played: Watched) -> None:
    tiny, llama = of_model(played, "tiny"), of_model(played, "llama")
    assert (tiny.sources, tiny.sources_heard) == (2, 1)
    assert tiny.resident_blocks == {"device": EXPECTED[VLLM]["resident_device"]}
    assert tiny.windows["5m"].rewarmed_blocks_per_second == pytest.approx(EXPECTED[VLLM]["rewarmed"] / 300)
    assert list(tiny.windows["5m"].evicted_blocks_per_second) == ["device"]
    assert llama.windows["5m"].evicted_blocks_per_second["host"] == pytest.approx(
        EXPECTED[SGLANG]["removed_host"] / 300
    )


def test_windows_hold_what_the_metrics_gained(played: Watched) -> None:
    """The last minute: a is read from its published samples four steps apart."""
    ledger = source("again").ledgers[0]
    steps = in_steps(VLLM)
    for payload in (each for step in steps[:-4] for each in step):
        ledger.add(payload)
    before = ledger.removed["device"]
    for payload in (each for step in steps[-4:] for each in step):
        ledger.add(payload)
    (evicted,) = (s.value for s in played.events[0].samples if s.metric is c.EVICTED_BLOCKS)
    assert ledger.removed["device"] == evicted
    window = of_model(played, "tiny").windows["1m"]
    assert window.evicted_blocks_per_second["device"] == pytest.approx((evicted - before) / 60)


def test_a_replica_whose_page_counts_no_evictions_shows_those_of_its_events(played: Watched) -> None:
    replicas = {each.target: each for each in played.summary().replicas.shown}
    assert replicas["a"].evicted_tokens_per_second is None
    assert replicas["a"].evicted_blocks_per_second == pytest.approx(EXPECTED[VLLM]["removed_device"] / 300)
    assert replicas["silent"].evicted_blocks_per_second is None


def test_the_history_has_evictions_of_the_device(played: Watched) -> None:
    history = played.summary("tiny").history
    window = of_model(played, "tiny").windows["1m"]
    assert history.evicted_blocks_per_second[-1] == pytest.approx(
        window.evicted_blocks_per_second["device"], rel=1e-4
    )
    assert max(v for v in history.rewarmed_blocks_per_second if v is not None) > 0
    assert history.evicted_tokens_per_second[-1] is None


NOTHING = EventWindow(
    stored_blocks_per_second={},
    evicted_blocks_per_second={},
    rewarmed_blocks_per_second=None,
    rewarmed_ratio=None,
    lost_batches=0,
)


def test_what_was_never_heard_is_null_and_what_is_not_configured_is_not_there() -> None:
    watched = Watched(events=[source("a")])
    watched.tick(BEGAN + 1)
    watched.tick(BEGAN + 2)
    events = watched.summary().fleet.events
    assert events == Events(
        sources=1,
        sources_heard=0,
        resident_blocks={},
        followed_ratio=None,
        windows=dict.fromkeys(c.WINDOWS, NOTHING),
    )
    assert set(watched.summary().history.evicted_blocks_per_second) == {None}
    without = Watched()
    without.tick(BEGAN + 1)
    assert without.summary().fleet.events is None
    assert without.summary().data_quality.events.total == 0


def test_an_idle_engine_that_was_heard_evicts_nothing_which_is_zero() -> None:
    watched = Watched(events=[source("a")])
    watched.events[0].ledgers[0].add(payloads(VLLM)[0])
    watched.tick(BEGAN + 1)
    for second in range(2, 80):
        watched.tick(BEGAN + second)
    events = watched.summary().fleet.events
    assert events is not None
    assert events.windows["1m"].evicted_blocks_per_second == {"device": 0.0}
    assert (events.windows["1m"].rewarmed_blocks_per_second, events.windows["1m"].rewarmed_ratio) == (
        0.0,
        None,
    )


def test_an_engine_that_comes_back_with_another_model_leaves_its_past_to_the_first() -> None:
    """What came between two looks of which only the second shows the other model is the fleet's alone."""
    watched = Watched(events=[source("a")])
    ledger, batches = watched.events[0].ledgers[0], payloads(VLLM)
    gained, seen = [], {}
    for at, model in enumerate(("one", "one", "two", "two", "one", "one"), 1):
        before = ledger.stored["device"]
        for payload in batches[20 * at : 20 * at + 20]:
            ledger.add(payload)
        gained.append(ledger.stored["device"] - before)
        watched.collector("a").page(vllm_page(at, 0, model=model), BEGAN + at)
        watched.tick(BEGAN + at)
        seen[at] = of_model(watched, model).windows["1h"].stored_blocks_per_second["device"] * at
    assert all(gained)
    assert seen[2] == pytest.approx(gained[0] + gained[1])
    assert seen[4] == pytest.approx(gained[3])
    assert seen[6] == pytest.approx(gained[0] + gained[1] + gained[5])
    fleet = watched.summary().fleet.events
    assert fleet is not None
    assert fleet.windows["1h"].stored_blocks_per_second["device"] * 6 == pytest.approx(sum(gained))


def test_sources_that_fail_or_lose_come_first_in_what_makes_figures_doubtful() -> None:
    names = ("fine", "silent", "lossy", "deaf")
    watched = Watched(events=[source(name) for name in names])
    fine, _, lossy, deaf = watched.events
    for each in (fine, lossy):
        each.ledgers[0].add(payloads(VLLM)[0])
    lossy.ledgers[0].add(b"not msgpack")
    deaf.problem = "Address already in use"
    watched.tick(BEGAN + 1)
    lossy.ledgers[0].lost += 7
    watched.tick(BEGAN + 2)
    summary = watched.summary()
    shown = summary.data_quality.events.shown
    assert [each.target for each in shown] == ["deaf", "lossy", "silent", "fine"]
    assert shown[0].problem == "Address already in use"
    assert shown[1] == schema.EventHealth(
        target="lossy", heard=True, lost_batches=7, unreadable=1, followed_ratio=1.0, problem=None
    )
    assert summary.fleet.events is not None
    assert summary.fleet.events.windows["1m"].lost_batches == 7
    for second in range(3, 90):
        watched.tick(BEGAN + second)
    later = watched.summary().fleet.events
    assert later is not None
    assert (later.windows["1m"].lost_batches, later.windows["5m"].lost_batches) == (0, 7)


def test_a_sample_of_blocks_is_said_to_be_one() -> None:
    watched = Watched(events=[EventSource(EventOptions("a", "tcp://127.0.0.1:1", max_blocks=1_000))])
    for payload in payloads(SGLANG):
        watched.events[0].ledgers[0].add(payload)
    watched.tick(BEGAN + 1)
    events = watched.summary().fleet.events
    assert events is not None
    shares = [s.value for s in watched.events[0].samples if s.metric is c.TRACKED_BLOCKS]
    assert events.followed_ratio == min(s for s in shares if isinstance(s, float)) < 1
