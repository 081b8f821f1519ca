"""Engines that restart in every way at every moment: what is counted, and what was cold, equals the truth."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.model import Distribution
from kvcache_exporter.scrape.collector import TargetCollector

AT = 1_795_950_000.0
Kind = Literal["start time", "process id", "kept folder"]
Phases = dict[str, float]


@dataclass
class Engine:
    """Serves requests and restarts; its counters begin at zero with each process, but in a kept folder."""

    kind: Kind
    started: float = AT - 7200.0
    pids: list[int] = field(default_factory=lambda: [100])
    requests: int = 20
    tokens: int = 9_000
    model: str = "m"

    def serve(self, requests: int) -> None:
        self.requests += requests
        self.tokens += 300 * requests

    def restart(self, at: float) -> None:
        self.started = at
        self.pids = [*(self.pids if self.kind == "kept folder" else []), self.pids[-1] + 1]
        if self.kind != "kept folder":
            self.requests = self.tokens = 0

    @property
    def counts(self) -> bool:
        """Whether there are counters on the page: SGLang makes them when they are first used."""
        return self.kind == "start time" or self.requests > 0

    def page(self, spoilt: str = "") -> bytes:
        """As the engine would print it; `spoilt` names a family that is missing or cannot be a count."""
        labels = f'model_name="{self.model}"'
        prefix = "vllm" if self.kind == "start time" else "sglang"
        lines = [f"{prefix}:num_requests_running{{{labels}}} 1"]
        if self.kind == "start time":
            lines.append(f"process_start_time_seconds {self.started}")
        else:
            lines += [f'sglang:num_retracted_reqs{{{labels},pid="{pid}"}} 0' for pid in self.pids]
        if self.counts:
            requests = "request_success" if prefix == "vllm" else "num_requests"
            counters = {"prompt_tokens_total": self.tokens, f"{requests}_total": self.requests}
            lines += [f"{prefix}:{name}{{{labels}}} {value}" for name, value in counters.items()]
            ttft = f"{prefix}:time_to_first_token_seconds"
            lines += [f'{ttft}_bucket{{{labels},le="{le}"}} {self.requests}' for le in ("1.0", "+Inf")]
            lines += [f"{ttft}_{part}{{{labels}}} {self.requests}" for part in ("sum", "count")]
        if spoilt.startswith("no "):
            lines = [line for line in lines if spoilt[3:] not in line]
        elif spoilt:
            lines = [f"{line.rpartition(' ')[0]} {spoilt}" if "prompt" in line else line for line in lines]
        return "\n".join([*lines, ""]).encode()


def ttft(collector: TargetCollector) -> Phases:
    states = {s.labels[-1]: s.value for s in collector.samples if s.metric is c.ENGINE_TTFT}
    return {phase: state.counts[-1] for phase, state in states.items() if isinstance(state, Distribution)}


def prompt_increase(collector: TargetCollector) -> float:
    span = collector.span(86_400.0)
    found = [item.counters.get(c.PROMPT_TOKENS) for item in collector.watched.values()]
    return sum(span.increase(terms) for terms in found if terms) if span else 0.0


@dataclass
class Truth:
    """What each page adds, by whether the target was cold while it was gained."""

    engine: Engine
    phases: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    tokens: int = 0
    """Of prompts since the exporter's first page."""
    anew: bool = False
    """Whether the engine has restarted since the last page."""
    _requests: int = 0
    _tokens: int | None = None
    """As shown last; None before the exporter has seen any."""
    _first: bool = True
    """Whether the next page is the exporter's first one."""

    def exporter_restarts(self) -> None:
        self.tokens, self._tokens, self._first = 0, None, True

    def page(self, phase: str, spoilt: str) -> None:
        begins_at_zero = self.anew and self.engine.kind != "kept folder"
        if begins_at_zero:
            self.phases.clear()
        self.phases[phase] += self.engine.requests - (0 if begins_at_zero else self._requests)
        if self._first and (spoilt.startswith("no ") or not self.engine.counts):
            # A series that is not on the first page is taken for one that is yet to be made.
            self._tokens = 0
        elif self._tokens is None and not spoilt:
            self._tokens = self.engine.tokens
        elif begins_at_zero and self._tokens is not None:
            self._tokens = 0
        self._first = False
        if not spoilt and self._tokens is not None:
            self.tokens += self.engine.tokens - self._tokens
            self._tokens = self.engine.tokens
        self.restarts += self.anew
        self._requests, self.anew = self.engine.requests, False


STEPS = (
    *("serve", "scrape", "down", "restart", "exporter restarts", "clock goes back"),
    *("no prompt_tokens", "NaN", "-Inf", "-5"),
)


@given(
    st.sampled_from(["start time", "process id", "kept folder"]),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 90)), max_size=30),
)
def test_what_is_counted_equals_the_truth_however_engine_and_exporter_restart(
    kind: Kind, steps: list[tuple[str, int]]
) -> None:
    """Counters may be above their old values at once, absent for a while, or gone back."""
    engine = Engine(kind)
    truth, collector, at, behind = Truth(engine), TargetCollector("t", ENGINES), AT, 0.0
    for step, amount in [("scrape", 0), *steps, ("serve", 1), ("scrape", 0), ("scrape", 0)]:
        at += 5.0 + amount
        if step == "serve":
            engine.serve(amount)
        elif step == "restart":
            engine.restart(at)
            engine.serve(max(0, amount - 45))
            truth.anew = True
        elif step == "down":
            collector.failed(ScrapeError("connection", "refused"))
        elif step == "exporter restarts":
            kept = collector.cold.snapshot(at - behind)
            collector = TargetCollector("t", ENGINES)
            collector.cold.restore(kept)
            truth.exporter_restarts()
        elif step == "clock goes back":
            behind += 40.0 * amount
        else:
            spoilt = "" if step == "scrape" else step
            collector.page(engine.page(spoilt), at - behind)
            truth.page(collector.cold.page_phase, spoilt)
    assert collector.cold.lifecycle.life.restarts == truth.restarts
    assert ttft(collector) == {phase: n for phase, n in truth.phases.items() if n}
    assert prompt_increase(collector) == truth.tokens


def ranks(*pages: tuple[str, int]) -> bytes:
    """One page of several ranks of SGLang behind its router, each with its count of requests."""
    lines = []
    for worker, n in pages:
        labels = f'model_name="m",worker_addr="{worker}"'
        lines += [f"sglang_{name}_total{{{labels}}} {n}" for name in ("prompt_tokens", "num_requests")]
        ttft = "sglang_time_to_first_token_seconds"
        lines += [f'{ttft}_bucket{{{labels},le="{le}"}} {n}' for le in ("1.0", "+Inf")]
        lines += [f"{ttft}_{part}{{{labels}}} {n}" for part in ("sum", "count")]
    return "\n".join([*lines, ""]).encode()


def test_one_worker_that_restarts_leaves_the_others_what_they_had_while_warm() -> None:
    collector = TargetCollector("t", ENGINES)
    for minute, counts in enumerate([(10, 100), (2, 101), (12, 103)]):
        collector.page(ranks(("a", counts[0]), ("b", counts[1])), AT + 60 * minute)
    shown = {
        s.labels[-2:]: s.value.counts[-1]
        for s in collector.samples
        if s.metric is c.ENGINE_TTFT and isinstance(s.value, Distribution)
    }
    assert shown == {("a", "cold"): 12.0, ("b", "warm"): 100.0, ("b", "cold"): 3.0}
    assert prompt_increase(collector) == 12 + 3


def test_a_restart_that_nobody_saw_shows_in_counters_below_those_of_the_state_file() -> None:
    """Several API servers of one vLLM have neither a start time nor process ids on their page."""
    for served, restarts in ((50, 1), (100, 0), (101, 0)):
        first, second = TargetCollector("t", ENGINES), TargetCollector("t", ENGINES)
        first.page(ranks(("a", 100)), AT)
        second.cold.restore(first.cold.snapshot(AT))
        second.page(ranks(("a", served)), AT + 60)
        assert second.cold.lifecycle.life.restarts == restarts
        second.page(ranks(("a", served + 1)), AT + 75)
        assert second.cold.lifecycle.life.restarts == restarts
        assert ttft(second) == {"cold" if restarts else "warm": served + 1.0}


def test_a_restart_that_nobody_saw_shows_in_counters_that_are_not_there_yet() -> None:
    """SGLang up to 0.5.1 has neither start time nor process ids, and no counters before the first request."""
    first, second = TargetCollector("t", ENGINES), TargetCollector("t", ENGINES)
    first.page(ranks(("a", 100)), AT)
    second.cold.restore(first.cold.snapshot(AT))
    second.page(b'sglang_num_running_reqs{model_name="m",worker_addr="a"} 0\n', AT + 60)
    assert second.cold.lifecycle.life.restarts == 1
    second.page(ranks(("a", 300)), AT + 120)
    assert second.cold.lifecycle.life.restarts == 1
    assert (ttft(second), prompt_increase(second)) == ({"cold": 300.0}, 300.0)


def test_a_restart_long_before_anybody_looked_is_counted_and_its_requests_are_not_called_cold() -> None:
    engine, collector = Engine("start time"), TargetCollector("t", ENGINES)
    collector.page(engine.page(), AT)
    engine.restart(AT + 100.0)
    engine.serve(50)
    collector.page(engine.page(), AT + 7_200.0)
    life = collector.cold.lifecycle.life
    assert (life.restarts, life.phase, life.warmup) == (1, "warm", 900.0)
    assert ttft(collector) == {"warm": 50.0}


def test_another_model_in_a_process_that_goes_on_is_cold_from_now_on() -> None:
    engine, collector = Engine("start time"), TargetCollector("t", ENGINES)
    collector.page(engine.page(), AT)
    engine.model = "n"
    collector.page(engine.page(), AT + 60.0)
    life = collector.cold.lifecycle.life
    assert (life.restarts, life.phase, life.cold_since) == (1, "cold", AT + 60.0)
    assert collector.cold.beginnings == 0, "counters without a model's name go on"


@pytest.mark.parametrize("beside", [b"", b'vllm:num_requests_running{model_name="stays"} 1\n'])
def test_names_of_models_without_end_are_not_remembered_without_end(beside: bytes) -> None:
    engine, collector = Engine("start time"), TargetCollector("t", ENGINES)
    for number in range(1_000):
        engine.model = f"m{number}"
        collector.page(engine.page() + beside, AT + 15 * number)
    assert len(collector.cold.snapshot(AT)) < 40_000


def test_a_bucket_that_one_damaged_page_lacks_moves_nothing_from_one_phase_to_the_other() -> None:
    """A counter that jumps up and back is a reset to Prometheus."""
    engine, collector = Engine("process id", requests=0, tokens=0), TargetCollector("t", ENGINES)
    collector.page(engine.page(), AT)
    engine.serve(5)
    collector.page(engine.page(), AT + 15)
    collector.page(engine.page(), AT + 15 + 900)
    engine.serve(3)
    for minute, page in enumerate(
        [engine.page(), engine.page().replace(b'le="1.0"} 8', b"?"), engine.page()]
    ):
        collector.page(page, AT + 1_000 + 60 * minute)
        assert ttft(collector) == {"cold": 5.0, "warm": 3.0}
