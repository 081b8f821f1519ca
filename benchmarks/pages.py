"""Parsing and writing of pages, compared with prometheus_client on the same pages and samples."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.timing import Row, cpu_seconds
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.exposition import Page, Renderer, number
from kvcache_exporter.model import Distribution, Sample
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.parse import Layouts, PageParser
from kvcache_exporter.scrape.select import wanted_names

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures" / "engines"
REPLICAS = 1000


def full_page(name: str) -> bytes:
    """A recorded page, which is thinned in the fixtures, filled up to its real size with unread families."""
    page = (FIXTURES / name / "page.prom").read_bytes()
    filler = b"".join(
        b"# HELP other_%d_seconds Left out of the fixture.\n# TYPE other_%d_seconds histogram\n" % (n, n)
        + b"".join(
            b'other_%d_seconds_bucket{engine="0",le="%d.0",model_name="tiny"} 5.0\n' % (n, edge)
            for edge in range(20)
        )
        for n in range(25)
    )
    return page + filler


def parsing() -> Iterator[Row]:
    page = full_page("vllm-0.32.0")
    pages = [page.replace(b"} 0.0\n", b"} %d.0\n" % n) for n in range(50)]
    parser = PageParser(wanted_names(ENGINES))
    parser.parse(pages[0])
    hot = cpu_seconds(lambda: [parser.parse(p) for p in pages]) / len(pages)
    cold = cpu_seconds(lambda: PageParser(wanted_names(ENGINES), Layouts()).parse(page), 10)
    text = page.decode()
    reference = cpu_seconds(lambda: list(text_string_to_metric_families(text)), 5)
    size = f"{len(page) / 1000:.0f} kB page"
    what = f"parse a {size} of a known layout"
    yield Row(what, f"{hot * 1e6:.0f} us", f"{reference * 1e3:.1f} ms", reference / hot, ">= 50 x")
    what = f"parse a {size} for the first time"
    yield Row(what, f"{cold * 1e6:.0f} us", f"{reference * 1e3:.1f} ms", reference / cold, "")


def writing() -> Iterator[Row]:
    collector = TargetCollector("replica", ENGINES)
    page = full_page("vllm-0.32.0")
    for second in range(3):
        collector.page(page, 1000.0 + 15 * second)
    fleet = [as_target(collector.samples, f"10.0.{n // 250}.{n % 250}:8000") for n in range(REPLICAS)]
    renderers = [Renderer() for _ in fleet]
    blocks = [renderer.block(samples) for renderer, samples in zip(renderers, fleet, strict=True)]
    ours = cpu_seconds(lambda: Page(10**6).text(blocks).encode(), 3)
    rendering = cpu_seconds(lambda: [r.block(s) for r, s in zip(renderers, fleet, strict=True)], 3)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reference([sample for samples in fleet for sample in samples]))
    reference = cpu_seconds(lambda: generate_latest(registry), 1)
    shown = f"{reference * 1e3:.0f} ms"
    what = f"/metrics of {REPLICAS} replicas"
    yield Row(what, f"{ours * 1e3:.0f} ms", shown, reference / ours, ">= 5 x, < 1 s")
    both = ours + rendering
    what = "the same with the rendering done at scrape time"
    yield Row(what, f"{both * 1e3:.0f} ms", shown, reference / both, "")


def as_target(samples: list[Sample], name: str) -> list[Sample]:
    return [Sample(s.metric, (name, *s.labels[1:]), s.value) for s in samples]


class Reference:
    """The same samples as families of prometheus_client, created in advance."""

    def __init__(self, samples: list[Sample]) -> None:
        self._families: dict[str, Any] = {}
        for metric, labels, value in samples:
            family = self._families.get(metric.name) or self._family(metric.name, metric.kind, metric)
            if isinstance(value, Distribution):
                edges = [*map(number, value.edges), "+Inf"]
                family.add_metric(labels, list(zip(edges, value.counts, strict=True)), value.sum)
            else:
                family.add_metric(labels, value)

    def _family(self, name: str, kind: str, metric: Any) -> Any:
        make = {"counter": CounterMetricFamily, "histogram": HistogramMetricFamily}.get(
            kind, GaugeMetricFamily
        )
        self._families[name] = made = make(name, metric.help, labels=metric.labels)
        return made

    def collect(self) -> list[Any]:
        return list(self._families.values())
