"""Windows against a naive model: any sequence of increments, resets, gaps, missing and vanishing series.

Restarts that are known of, at which counters may stand above where they were, and a clock that goes back.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.windows import History, Terms

SERIES = ("a", "b", "c")
WINDOW = 60.0


class Recorded(NamedTuple):
    """One page; `at` is the clock's time, which may have gone back since the page before."""

    at: float
    passed: float
    """Seconds that have really passed since the first page, but for those that the clock went back."""
    values: dict[str, float]
    restarted: frozenset[str] = frozenset()
    """Series that are known to have begun at zero since the page before."""


@dataclass
class Model:
    """Replays every page from the start, one series at a time, in the plainest way."""

    pages: list[Recorded] = field(default_factory=list)

    def counted(self, name: str) -> list[tuple[int, float]]:
        """(number of the page, counted since the page before) for one series."""
        found: list[tuple[int, float]] = []
        last: float | None = None
        for number, page in enumerate(self.pages):
            if last is not None and name in page.restarted:
                last = 0.0
            if (value := page.values.get(name)) is None:
                continue
            if last is None:
                found.append((number, value if number else 0.0))
            else:
                found.append((number, value - last if value >= last else value))
            last = value
        return found

    def increase(self, name: str, base: int) -> float:
        return sum(amount for number, amount in self.counted(name) if number > base)

    def base(self, window: float) -> int | None:
        """The number of the page at which the window begins."""
        now = self.pages[-1].passed
        older = [number for number, page in enumerate(self.pages) if page.passed <= now - window]
        base = older[-1] if older else 0
        return base if 0 < now - self.pages[base].passed <= 2 * window else None


@st.composite
def recordings(draw: st.DrawFn) -> list[Recorded]:
    at, passed = 1000.0, 0.0
    values = dict.fromkeys(SERIES, 0.0)
    pages: list[Recorded] = []
    for _ in range(draw(st.integers(1, 9))):
        step = draw(st.sampled_from([1.0, 5.0, 15.0, 20.0, 40.0, 61.0, 150.0, -10.0, -3600.0]))
        at, passed = at + step, passed + max(step, 0.0)
        page, restarted = {}, set()
        for name in SERIES:
            reset = draw(st.integers(0, 9))
            if reset < 2:
                values[name] = 0.0
            if reset == 1:
                restarted.add(name)
            values[name] += draw(st.integers(0, 50))
            if draw(st.integers(0, 4)):
                page[name] = values[name]
        pages.append(Recorded(at, passed, page, frozenset(restarted)))
    return pages


def take_in(history: History, page: Recorded) -> None:
    columns = {
        name: history.column(name) for name in SERIES if name in history._columns or name in page.values
    }
    if page.restarted:
        history.restart(but={column for name, column in columns.items() if name not in page.restarted})
    history.add(page.at, [(columns[name], value) for name, value in page.values.items()])


@given(recordings(), st.sampled_from([5.0, 60.0, 300.0]))
def test_increases_equal_the_naive_model(pages: list[Recorded], window: float) -> None:
    history, model = History(300.0), Model()
    for page in pages:
        take_in(history, page)
        model.pages.append(page)
        span, base = history.span(window), model.base(window)
        assert (span is None) == (base is None)
        if span is not None and base is not None:
            assert span.seconds == page.passed - pages[base].passed
            for name in SERIES:
                if name in history._columns:
                    assert span.increase(Terms((history.column(name),))) == model.increase(name, base)


@given(recordings())
def test_an_increase_is_never_negative(pages: list[Recorded]) -> None:
    history = History(300.0)
    for page in pages:
        take_in(history, page)
        span = history.span(WINDOW)
        if span:
            assert all(span.increase(Terms((column,))) >= 0 for column in range(len(history._last)))


def test_a_first_page_is_a_baseline_and_a_series_born_later_counts_from_zero() -> None:
    history = History(300.0)
    history.add(0.0, [(history.column("old"), 1000.0)])
    history.add(15.0, [(history.column("old"), 1001.0), (history.column("new"), 7.0)])
    span = history.span(60.0)
    assert span is not None
    assert span.increase(Terms((0,))) == 1.0
    assert span.increase(Terms((1,))) == 7.0


def test_a_window_reaches_back_to_the_last_page_at_its_start_and_no_further() -> None:
    history = History(300.0)
    for at, value in ((0.0, 0.0), (40.0, 10.0), (60.0, 30.0), (60.0, 31.0), (120.0, 100.0)):
        history.add(at, [(history.column("a"), value)])
    span = history.span(60.0)
    assert span is not None
    assert (span.seconds, span.increase(Terms((0,)))) == (60.0, 69.0)


def test_after_a_gap_no_window_pretends_to_be_shorter_than_it_is() -> None:
    history = History(3600.0)
    history.add(0.0, [(history.column("a"), 0.0)])
    history.add(1800.0, [(history.column("a"), 50.0)])
    assert history.span(60.0) is None
    assert history.span(3600.0) is not None


def test_memory_is_bounded_at_any_scrape_interval() -> None:
    history = History(3600.0)
    for second in range(20_000):
        history.add(float(second), [(history.column("a"), float(second))])
    assert len(history._rows) <= 480
    for window in (60.0, 300.0, 3600.0):
        span = history.span(window)
        assert span is not None
        assert span.seconds == pytest.approx(window, abs=15.0)
        assert span.increase(Terms((0,))) == span.seconds


def test_series_gone_for_longer_than_any_window_are_forgotten() -> None:
    history = History(3600.0)
    for number in range(500):
        at = number * 600.0
        history.add(at, [(history.column("stays"), float(number)), (history.column(f"model-{number}"), 1.0)])
    assert len(history._last) < 100
    assert history.generation > 0
    span = history.span(3600.0)
    assert span is not None
    assert span.increase(Terms((history.column("stays"),))) == 6.0
