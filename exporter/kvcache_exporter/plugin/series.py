"""Counters and histograms on prometheus_client's page that cost the engine less than its own.

A finished request changes twelve numbers. prometheus_client locks each, and among several API servers asks
for the process, too. Here one thread counts, so a number is a float in a list, which a scrape reads. Where
several processes share a page, each change goes into a file that prometheus_client makes the page of.
"""

import os
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.utils import floatToGoString

from kvcache_exporter import catalogue

_FOLDER = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")


@cache
def _file(kind: str, process: int) -> MmapedDict | None:
    """What a process adds to a shared page; None where the page is of one process only."""
    folder = next(filter(None, map(os.environ.get, _FOLDER)), None)
    # A name of its own: two writers of one file would overwrite each other.
    return MmapedDict(str(Path(folder) / f"{kind}_kvcache-{process}.db")) if folder else None


class Series:
    """One counter, or one histogram's sum and buckets. Only one thread may count."""

    __slots__ = ("_edges", "_file", "_keys", "values")

    def __init__(self, keys: Sequence[str], edges: Sequence[float], file: MmapedDict | None) -> None:
        self._keys, self._edges = keys, edges
        self.open(file)

    def open(self, file: MmapedDict | None) -> None:
        """Go on from what stands in the file, which is nothing unless the process has an earlier one's id."""
        self._file = file
        self.values = [0.0 if file is None else file.read_value(key)[0] for key in self._keys]

    def inc(self, amount: float = 1.0) -> None:
        self._add(0, amount)

    def observe(self, value: float) -> None:
        self._add(0, value)
        self._add(bisect_left(self._edges, value) + 1, 1.0)

    def _add(self, place: int, amount: float) -> None:
        value = self.values[place] = self.values[place] + amount
        if self._file is not None:
            self._file.write_value(self._keys[place], value, 0.0)


class Family:
    """A metric of the catalogue under labels of its own; a histogram if it has edges."""

    def __init__(self, metric: catalogue.Metric, *labels: str, edges: Sequence[float] = ()) -> None:
        self._metric, self._labels, self._edges = metric, list(labels), edges
        self._series: dict[tuple[str, ...], Series] = {}

    def series(self, *values: str) -> Series:
        """The one with these label values, made on first use."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Series(self._keys(list(values)), self._edges, self._shared())
        return found

    def reopen(self) -> None:
        """In a forked process: what was counted so far is the other's."""
        for series in self._series.values():
            series.open(self._shared())

    def _shared(self) -> MmapedDict | None:
        return _file(self._metric.kind, os.getpid())

    def _keys(self, values: list[str]) -> list[str]:
        """Names of the numbers in a shared file."""
        metric, name = self._metric, self._metric.name
        if metric.kind == "counter":
            return [mmap_key(metric.family, name, self._labels, values, metric.help)]
        buckets = [
            mmap_key(name, f"{name}_bucket", [*self._labels, "le"], [*values, edge], metric.help)
            for edge in self._texts()
        ]
        return [mmap_key(name, f"{name}_sum", self._labels, values, metric.help), *buckets]

    def _texts(self) -> list[str]:
        return [floatToGoString(edge) for edge in (*self._edges, float("inf"))]

    def read(self) -> Metric:
        """For the page of this process alone."""
        metric, labels = self._metric, self._labels
        found = self._series.copy()  # a scrape has a thread of its own
        if metric.kind == "counter":
            counter = CounterMetricFamily(metric.family, metric.help, labels=labels)
            for values, series in found.items():
                counter.add_metric(values, series.values[0])
            return counter
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=labels)
        for values, series in found.items():
            total, *buckets = series.values
            upto = list(zip(self._texts(), accumulate(buckets), strict=True))
            histogram.add_metric(values, buckets=upto, sum_value=total)
        return histogram
