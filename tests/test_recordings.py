"""Recordings of real engines give, phase by phase, what the client's own requests add up to."""

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvcache_exporter.engines import ENGINES
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.derive import request_hit_counts
from kvcache_exporter.windows import Span

RECORDINGS = Path(__file__).parent / "fixtures" / "recordings"
_NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())
# Aborts, probes and several prompts a call are counted by the engine but not, or otherwise, by the client.
_NOT_COMPARABLE = {"probe", "abort"}


class Sums(NamedTuple):
    cached: float
    prompt: float
    hits: float
    long_requests: float

    def __add__(self, other: tuple[Any, ...]) -> "Sums":
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))


def replay(name: str) -> tuple[TargetCollector, dict[str, Sums]]:
    """The collector after the last page, and what each phase added."""
    collector = TargetCollector(name, ENGINES)
    phases: dict[str, Sums] = {}
    pages = sorted((RECORDINGS / name).glob("*.prom"))
    for phase, found in groupby(pages, key=_phase):
        group = list(found)
        starts_itself = "-start_" in group[0].name
        if starts_itself:
            _feed(collector, group.pop(0))
        base = collector._history._rows[-1][1] if collector._history._rows else None
        for page in group:
            _feed(collector, page)
        if base is not None:
            newest = collector._history._rows[-1][1]
            phases[phase] = phases.get(phase, Sums(0, 0, 0, 0)) + _sums(collector, Span(1.0, base, newest))
    return collector, phases


def _phase(page: Path) -> str:
    return re.sub(r"^\d+_|(-start|-end)?_\d+\.prom$", "", page.name)


def _feed(collector: TargetCollector, page: Path) -> None:
    collector.page(page.read_bytes(), float(re.findall(r"_(\d+)\.prom", page.name)[0]))
    assert collector.up


def _sums(collector: TargetCollector, span: Span) -> Sums:
    total = Sums(0, 0, 0, 0)
    for item in collector.watched.values():
        if item.cached and item.prompt:
            total += (span.increase(item.cached), span.increase(item.prompt), 0, 0)
        if counts := request_hit_counts(item, span):
            total += (0, 0, *counts)
    return total


def _truth(name: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((RECORDINGS / name / "truth.json").read_text())
    return truth


@pytest.mark.parametrize("name", [n for n in _NAMES if n not in ("vllm-0.10.2", "vllm-0.8.5.post2")])
def test_token_weighted_hits_of_each_phase_equal_the_requests(name: str) -> None:
    """Exactly, in tokens: nothing lost at phase ends, restarts or families that appear late."""
    _, phases = replay(name)
    compared = 0
    for phase, truth in _truth(name)["phases"].items():
        if phase in _NOT_COMPARABLE or phase not in phases:
            continue
        expected = truth.get("engine_increase", {}).get("cached_tokens", truth["cached_tokens"])
        assert (phases[phase].cached, phases[phase].prompt) == (expected, truth["prompt_tokens"]), phase
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize(
    ("name", "phase", "hits", "requests"),
    [
        ("vllm-0.32.0", "shared", 6, 40),
        ("vllm-0.32.0", "shared-restart2", 40, 40),
        ("vllm-0.32.0", "hostile", 0, 72),
        ("vllm-0.32.0", "mixed", 1, 48),
        ("vllm-0.13.0", "shared", 2, 13),
        ("sglang-0.5.23-a", "multiturn", 33, 36),
        ("sglang-0.5.18-a", "hostile2", 117, 120),
    ],
)
def test_requests_that_skipped_prefill_are_counted_from_two_histograms(
    name: str, phase: str, hits: int, requests: int
) -> None:
    """Numbers counted over the client's request log: computed at most b of a prompt longer than b."""
    _, phases = replay(name)
    assert phases[phase][2:] == (hits, requests)


@pytest.mark.parametrize("name", _NAMES)
def test_a_restart_is_one_counter_reset(name: str) -> None:
    collector, _ = replay(name)
    assert collector._resets == len(_truth(name)["counter_resets"])


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("vllm-0.8.5.post2", ""),
        ("vllm-0.10.2", "lookup"),
        ("vllm-0.13.0", "computed"),
        ("vllm-0.16.0", "prompt"),
        ("vllm-0.32.0", "prompt"),
        ("sglang-0.5.1-a", "prompt"),
    ],
)
def test_the_hit_rate_says_what_it_is_made_from(name: str, basis: str) -> None:
    collector, _ = replay(name)
    assert collector.plan is not None
    assert collector.plan.basis == basis


_RECOUNTING = ("vllm-0.10.2", "vllm-0.13.0", "vllm-0.16.0", "vllm-0.20.0")


@pytest.mark.parametrize("name", _NAMES)
def test_recounted_lookups_are_an_anomaly_exactly_where_the_engine_recounts(name: str) -> None:
    """vLLM up to 0.26 counts a lookup at every scheduling attempt; nobody else in the recordings does."""
    collector, _ = replay(name)
    assert (collector.anomalies["lookups_recounted"] > 0) == (name in _RECOUNTING)


@pytest.mark.parametrize("name", _NAMES)
def test_more_cached_than_prompt_tokens_is_an_anomaly_of_old_sglang_only(name: str) -> None:
    collector, phases = replay(name)
    assert (collector.anomalies["cached_exceeds_prompt"] > 0) == (
        name in ("sglang-0.5.1-a", "sglang-0.5.4-a")
    )
    if collector.anomalies["cached_exceeds_prompt"]:
        assert phases["hostile2"].cached > phases["hostile2"].prompt
