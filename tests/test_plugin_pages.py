"""The plugin's part of an engine's page through the exporter: real pages against what the clients saw."""

import json
from collections import Counter
from pathlib import Path

import pytest

from engines.load import Seen
from fleet import BEGAN, Watched
from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.model import OUTCOMES, Distribution
from kvcache_exporter.scrape.collector import TargetCollector

RECORDINGS = Path(__file__).parent / "fixtures" / "plugin"
NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())
AT = 1_795_950_000.0
LATER, EARLIER = 0.25, 0.05
"""Seconds by which a client, on two busy cores, may see a first token later or earlier than the plugin."""


def recorded(name: str) -> tuple[list[bytes], list[Seen]]:
    """The pages before and after a load, and its requests as the clients saw them."""
    folder = RECORDINGS / name
    seen = json.loads((folder / "seen.json").read_text())
    return [p.read_bytes() for p in sorted(folder.glob("*.prom"))], [Seen(*values) for values in seen]


def collect(*pages: bytes, seconds: float = 60.0, request_metrics: bool = True) -> TargetCollector:
    collector = TargetCollector("llm/vllm-0", ENGINES, request_metrics=request_metrics)
    for number, page in enumerate(pages):
        collector.page(page, AT + number * seconds)
        assert collector.up
    return collector


def values(collector: TargetCollector, metric: c.Metric) -> dict[tuple[str, ...], float]:
    return {s.labels: s.value for s in collector.samples if s.metric is metric and isinstance(s.value, float)}


def distributions(collector: TargetCollector, metric: c.Metric) -> dict[str, Distribution]:
    return {
        s.labels[-1]: s.value
        for s in collector.samples
        if s.metric is metric and isinstance(s.value, Distribution)
    }


def by_window(collector: TargetCollector, metric: c.Metric) -> dict[str, float]:
    """Values with a source, by window."""
    at = metric.labels.index("source")
    return {labels[-1]: v for labels, v in values(collector, metric).items() if labels[at] == "llm/vllm-0"}


@pytest.mark.parametrize("name", NAMES)
def test_outcomes_are_those_of_the_clients_usage(name: str) -> None:
    (first, last), seen = recorded(name)
    before, after = (values(collect(page), c.REQUESTS) for page in (first, last))
    labels = {outcome: ("llm/vllm-0", "vllm", "tiny", "", outcome) for outcome in OUTCOMES}
    found = {outcome: after[labels[outcome]] - before[labels[outcome]] for outcome in OUTCOMES}
    assert found == {**dict.fromkeys(OUTCOMES, 0.0), **Counter(request.outcome for request in seen)}


@pytest.mark.parametrize("name", NAMES)
def test_windows_give_the_clients_own_rates(name: str) -> None:
    pages, seen = recorded(name)
    collector = collect(*pages)
    cached, prompt = sum(r.cached_tokens for r in seen), sum(r.prompt_tokens for r in seen)
    full = sum(request.outcome == "full" for request in seen)
    assert by_window(collector, c.TOKEN_HIT_RATIO) == dict.fromkeys(c.WINDOWS, cached / prompt)
    assert by_window(collector, c.REQUEST_HIT_RATIO) == dict.fromkeys(c.WINDOWS, full / len(seen))


@pytest.mark.parametrize("name", NAMES)
def test_waiting_by_outcome_is_the_clients_at_every_edge(name: str) -> None:
    (first, last), seen = recorded(name)
    before, after = (distributions(collect(page), c.REQUEST_TTFT) for page in (first, last))
    assert set(after) == {request.outcome for request in seen}
    for outcome, state in after.items():
        earlier = before[outcome].counts if outcome in before else (0.0,) * len(state.counts)
        counts = [now - then for now, then in zip(state.counts, earlier, strict=True)]
        times = [request.ttft for request in seen if request.outcome == outcome]
        assert counts[-1] == len(times)
        for edge, found in zip(state.edges, counts, strict=False):
            least, most = (sum(t <= edge + slack for t in times) for slack in (-EARLIER, LATER))
            assert least <= found <= most, (outcome, edge)


@pytest.mark.parametrize("name", NAMES)
def test_ranks_and_servers_add_up_to_what_the_engine_finished(name: str) -> None:
    """By the engine's own counters, since its start."""
    collector = collect(recorded(name)[0][-1])
    requests = sum(values(collector, c.REQUESTS).values())
    assert requests == sum(values(collector, c.ENGINE_REQUESTS).values())
    tokens = values(collector, c.REQUEST_PROMPT_TOKENS)[("llm/vllm-0", "vllm", "tiny", "")]
    assert tokens == sum(values(collector, c.PROMPT_TOKENS).values())


@pytest.mark.parametrize("name", NAMES)
def test_the_built_in_page_shows_them_as_requests(name: str) -> None:
    pages, seen = recorded(name)
    watched = Watched()
    for number, text in enumerate(pages):
        watched.collector("llm/vllm-0").page(text, BEGAN + 60 * number)
        watched.tick(BEGAN + 60 * number)
    (scope,) = watched.summary().models.shown
    assert scope.requests is not None
    assert scope.requests.sources == ["vllm plugin"]
    outcomes = Counter(request.outcome for request in seen)
    assert scope.requests.outcomes["5m"] == {**dict.fromkeys(OUTCOMES, 0), **outcomes}
    assert {o: found.count for o, found in scope.requests.ttft["5m"].items()} == outcomes
    window = scope.requests.windows["5m"]
    assert (window.requests, window.request_hit_ratio) == (len(seen), outcomes["full"] / len(seen))
    assert watched.summary().fleet.requests is not None


def test_a_restart_of_the_engine_is_bridged() -> None:
    (_, last), seen = recorded(NAMES[0])
    fresh = page({"full": 3, "miss": 1}, prompt=1000, cached=600)
    collector = collect(last, fresh)
    assert by_window(collector, c.REQUEST_HIT_RATIO)["5m"] == 0.75
    assert by_window(collector, c.TOKEN_HIT_RATIO)["5m"] == 0.6
    assert len(seen) > 4


def page(
    outcomes: dict[str, int], prompt: int, cached: int, *, prefix: str = "kvcache_", more: str = ""
) -> bytes:
    own = f'engine="0",model_name="tiny"{more}'
    lines = [f'{prefix}requests_total{{{own},outcome="{o}"}} {n}' for o, n in outcomes.items()]
    return "\n".join([
        f'vllm:prompt_tokens_total{{engine="0",model_name="tiny"}} {prompt}',
        *lines,
        f"{prefix}request_prompt_tokens_total{{{own}}} {prompt}",
        f"{prefix}request_cached_tokens_total{{{own}}} {cached}",
        "",
    ]).encode()  # fmt: skip


def test_requests_of_unknown_outcome_are_left_out_of_the_rate() -> None:
    collector = collect(
        page({"full": 0, "miss": 0, "unknown": 0}, 0, 0), page({"full": 1, "miss": 3, "unknown": 96}, 100, 50)
    )
    assert by_window(collector, c.REQUEST_HIT_RATIO)["1m"] == 0.25


def test_without_traffic_there_is_no_rate() -> None:
    same = page({"full": 1, "miss": 3}, 100, 50)
    assert by_window(collect(same, same), c.REQUEST_HIT_RATIO) == {}


def test_outcomes_nobody_knows_are_not_taken() -> None:
    collector = collect(page({"full": 1, "splendid": 7}, 100, 50))
    assert [labels[-1] for labels in values(collector, c.REQUESTS)] == ["full"]


def test_names_may_have_a_collectors_prefix() -> None:
    collector = collect(page({"full": 5}, 100, 50, prefix="ray_kvcache_"))
    assert values(collector, c.REQUESTS) == {("llm/vllm-0", "vllm", "tiny", "", "full"): 5.0}


def test_what_another_exporter_shows_is_no_engines() -> None:
    collector = collect(page({"full": 5}, 100, 50, more=',source="gateway"'))
    assert values(collector, c.REQUESTS) == {}


def test_targets_whose_requests_are_in_a_log_give_none() -> None:
    (first, last), _ = recorded(NAMES[0])
    collector = collect(first, last, request_metrics=False)
    assert {m for s in collector.samples if (m := s.metric).labels[:1] == ("source",)} == set()
    assert by_window(collector, c.REQUEST_HIT_RATIO) == {}
    assert values(collector, c.PROMPT_TOKENS)


def test_a_target_that_is_down_withdraws_its_requests() -> None:
    (first, last), _ = recorded(NAMES[0])
    collector = collect(first, last)
    collector.page(b"<html>", AT + 90)
    assert values(collector, c.REQUESTS) == {}
