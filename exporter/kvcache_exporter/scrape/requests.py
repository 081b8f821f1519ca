"""Requests by outcome from the page of an engine that runs our plugin, as if they were read from a log.

Their source is the target's name, which sets them apart from records of a log; ranks are summed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.engines.plugin import PLUGIN, REQUEST_FAMILIES
from kvcache_exporter.hit_rates import RequestIncreases, hit_rates
from kvcache_exporter.model import RawSeries, Sample
from kvcache_exporter.scrape.measure import distribution, evaluate
from kvcache_exporter.scrape.plan import Histogram, histograms
from kvcache_exporter.scrape.select import Selection
from kvcache_exporter.windows import Span, Terms


class _Counter(NamedTuple):
    metric: Metric
    model_name: str
    value: str
    """Value of the metric's own label."""
    terms: Terms


class RequestTerms(NamedTuple):
    """What the windows of one model need: indices of values, or columns of a History."""

    cached: Terms
    prompt: Terms
    full: Terms
    known: Terms


class RequestPlan:
    """How to read the plugin's part of a page of this layout; empty for pages without it."""

    def __init__(self, series: tuple[RawSeries, ...]) -> None:
        select = Selection(PLUGIN, series)
        self._counters: list[_Counter] = []
        self._histograms: list[tuple[Histogram, str]] = []
        for metric, source, value in REQUEST_FAMILIES:
            if metric.kind == "histogram":
                self._histograms += [(made, value) for made in histograms(metric, source, select)]
            else:
                found = select.terms(source, metric.kind)
                self._counters += [_Counter(metric, key.model_name, value, t) for key, t in found.items()]
        self.watched = self._watch()
        self.watched_indices = {i for terms in self.watched.values() for t in terms for i in t.plus}

    def _watch(self) -> dict[str, RequestTerms]:
        sums: dict[str, dict[str, tuple[int, ...]]] = defaultdict(lambda: defaultdict(tuple))
        for metric, model, outcome, terms in self._counters:
            for name in _READ_BY_WINDOWS.get((metric, outcome), ()):
                sums[model][name] += terms.plus
        return {
            model: RequestTerms(*(Terms(found[name]) for name in RequestTerms._fields))
            for model, found in sums.items()
        }

    def columns(self, columns: Mapping[int, int]) -> dict[str, RequestTerms]:
        """The watched terms, in columns of a History."""
        return {
            model: RequestTerms(*(Terms(tuple(columns[i] for i in terms.plus)) for terms in found))
            for model, found in self.watched.items()
        }

    def samples(self, values: list[float], source: str, provider: str) -> Iterator[Sample]:
        """Counters and histograms of the page."""
        for metric, model, own, terms in self._counters:
            if (value := evaluate(terms, values)) is not None:
                yield Sample(metric, (*_labels(source, provider, model), *filter(None, (own,))), value)
        for histogram, own in self._histograms:
            if (state := distribution(histogram, values)) is not None:
                labels = _labels(source, provider, histogram.key.model_name)
                yield Sample(histogram.metric, (*labels, *filter(None, (own,))), state)


def _read_by_windows() -> dict[tuple[Metric, str], tuple[str, ...]]:
    read: dict[tuple[Metric, str], tuple[str, ...]] = {
        (family.metric, family.value): ("known",)
        for family in REQUEST_FAMILIES
        if family.metric is c.REQUESTS and family.value != "unknown"
    }
    read[c.REQUESTS, "full"] = ("full", "known")
    return {**read, (c.REQUEST_CACHED_TOKENS, ""): ("cached",), (c.REQUEST_PROMPT_TOKENS, ""): ("prompt",)}


_READ_BY_WINDOWS = _read_by_windows()


def increases_of(watched: Mapping[str, RequestTerms], span: Span) -> dict[str, RequestIncreases]:
    """Increases by model; the terms of `watched` are columns."""
    return {model: RequestIncreases(*map(span.increase, terms)) for model, terms in watched.items()}


def windowed(
    by_model: Mapping[str, RequestIncreases], source: str, provider: str, window: str
) -> Iterator[Sample]:
    """The two hit rates of each model over one window."""
    for model, found in by_model.items():
        yield from hit_rates(found, _labels(source, provider, model), window)


def _labels(source: str, provider: str, model_name: str) -> tuple[str, str, str, str]:
    """The labels REQ, without a prompt group: an engine knows none."""
    return (source, provider, model_name, "")
