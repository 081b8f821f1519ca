"""Windows against a naive model: any sequence of increments, resets, gaps, missing and vanishing series."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.windows import History, Terms

SERIES = ("a", "b", "c")
WINDOW = 60.0


@dataclass
class Model:
    """Replays every page from the start, one series at a time, in the plainest way."""

    pages: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def events(self, name: str) -> list[tuple[float, float]]:
        """(time, counted since the page before) for one series."""
        found: list[tuple[float, float]] = []
        for number, (at, page) in enumerate(self.pages):
            if name in page:
                value, before = page[name], self._last_before(name, number)
                if before is None:
                    found.append((at, value if number else 0.0))
                else:
                    found.append((at, value - before if value >= before else value))
        return found

    def _last_before(self, name: str, number: int) -> float | None:
        """The value a series is compared with: its last one, or zero if another one was reset since."""
        last: float | None = None
        for earlier in range(number):
            page = self.pages[earlier][1]
            reset = any(v < (self._last_before(o, earlier) or 0) for o, v in page.items())
            if name in page:
                last = page[name]
            elif reset and last is not None:
                last = 0.0
        return last

    def increase(self, name: str, base: float) -> float:
        return sum(amount for at, amount in self.events(name) if at > base)

    def base(self, window: float) -> float | None:
        if len(self.pages) < 2:
            return None
        now = self.pages[-1][0]
        older = [at for at, _ in self.pages if at <= now - window]
        base = older[-1] if older else self.pages[0][0]
        return base if 0 < now - base <= 2 * window else None


@st.composite
def recordings(draw: st.DrawFn) -> list[tuple[float, dict[str, float]]]:
    at = 1000.0
    values = dict.fromkeys(SERIES, 0.0)
    pages: list[tuple[float, dict[str, float]]] = []
    for _ in range(draw(st.integers(1, 9))):
        at += draw(st.sampled_from([1.0, 5.0, 15.0, 20.0, 40.0, 61.0, 150.0]))
        page = {}
        for name in SERIES:
            if draw(st.integers(0, 9)) == 0:
                values[name] = 0.0
            values[name] += draw(st.integers(0, 50))
            if draw(st.integers(0, 4)):
                page[name] = values[name]
        pages.append((at, page))
    return pages


@given(recordings(), st.sampled_from([5.0, 60.0, 300.0]))
def test_increases_equal_the_naive_model(pages: list[tuple[float, dict[str, float]]], window: float) -> None:
    history, model = History(300.0), Model()
    for at, page in pages:
        history.add(at, [(history.column(name), value) for name, value in page.items()])
        model.pages.append((at, page))
        span, base = history.span(window), model.base(window)
        assert (span is None) == (base is None)
        if span is not None and base is not None:
            assert span.seconds == at - base
            for name in SERIES:
                if name in history._columns:
                    assert span.increase(Terms((history.column(name),))) == model.increase(name, base)


@given(recordings())
def test_an_increase_is_never_negative(pages: list[tuple[float, dict[str, float]]]) -> None:
    history = History(300.0)
    for at, page in pages:
        history.add(at, [(history.column(name), value) for name, value in page.items()])
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
