"""Hit rates over windows against the plainest computation, whatever is missed, late or restarted between."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.scrape.collector import TargetCollector

AT = 1_795_950_000.0
WINDOWS = {"1m": 60.0, "5m": 300.0, "1h": 3600.0}


class Step(NamedTuple):
    """What happens before the next time that a page is due."""

    seconds: float
    prompt: int
    cached: int
    event: str


def page(start: float, totals: list[int]) -> bytes:
    """Two data-parallel ranks, each with prompt tokens and those that were cached."""
    lines = [f"process_start_time_seconds {start}"]
    for rank in (0, 1):
        labels = f'{{engine="{rank}",model_name="m"}}'
        names = ("prompt_tokens", "prompt_tokens_cached")
        lines += [f"vllm:{name}_total{labels} {totals[2 * rank + n]}" for n, name in enumerate(names)]
    return "\n".join([*lines, ""]).encode()


def shown(collector: TargetCollector) -> dict[tuple[str, str], float | object]:
    place = {name: c.TOKEN_HIT_RATIO.labels.index(name) for name in ("engine_rank", "window")}
    return {
        (s.labels[place["engine_rank"]], s.labels[place["window"]]): s.value
        for s in collector.samples
        if s.metric is c.TOKEN_HIT_RATIO
    }


def expected(pages: list[tuple[float, list[int]]]) -> dict[tuple[str, str], float]:
    """`pages` are times, and what the ranks gained since the page before: prompt, cached, prompt, cached."""
    now = pages[-1][0]
    found = {}
    for window, length in WINDOWS.items():
        older = [number for number, (at, _) in enumerate(pages) if at <= now - length]
        base = older[-1] if older else 0
        if not 0 < now - pages[base][0] <= 2 * length:
            continue
        for rank in (0, 1):
            prompt, cached = (sum(gained[2 * rank + n] for _, gained in pages[base + 1 :]) for n in (0, 1))
            if prompt:
                found[str(rank), window] = cached / prompt
    return found


steps = st.builds(
    lambda seconds, prompt, share, event: Step(seconds, prompt, prompt * share // 8, event),
    st.sampled_from([1.0, 15.0, 20.0, 59.0, 61.0, 200.0, 700.0, 4000.0]),
    st.integers(0, 5_000),
    st.integers(0, 8),
    st.sampled_from(["", "", "", "missed", "failed", "restart", "restart, then missed"]),
)


@given(st.integers(0, 10**9), st.lists(steps, min_size=1, max_size=25))
def test_every_window_holds_exactly_what_its_pages_gained(already: int, happened: list[Step]) -> None:
    """The first page, however much it counts already, is where counting begins."""
    collector = TargetCollector("t", ENGINES)
    at, start, totals = AT, AT - 100.0, [already, already // 2] * 2
    gained, pages = [0] * 4, list[tuple[float, list[int]]]()
    for step in [Step(0.0, 0, 0, ""), *happened]:
        at += step.seconds
        if step.event.startswith("restart"):
            # What was served since the last page is lost with the process.
            at += 10.0
            start, totals, gained = at, [0] * 4, [0] * 4
        for place, amount in enumerate((step.prompt, step.cached, step.prompt // 3, 0)):
            totals[place] += amount
            gained[place] += amount
        if step.event == "failed":
            collector.failed(ScrapeError("timeout", "no answer"))
        elif "missed" not in step.event:
            collector.page(page(start, totals), at)
            pages.append((at, gained))
            gained = [0] * 4
            assert shown(collector) == expected(pages)
