"""Pages as promtool's input, and what the exporter makes of them as what promtool has to find."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.exposition import escape
from kvcache_exporter.model import Distribution, Sample
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.lines import parse_line

STEP = 15
"""Seconds between two pages."""


class Target(NamedTuple):
    """Pages of one process, one every STEP seconds, and the labels that its scrape gives them."""

    pages: Sequence[bytes | None]
    """None where it does not answer."""
    instance: str = "replica-0:8000"
    job: str = "llm"
    namespace: str = "prod"
    more: Mapping[str, str] = MappingProxyType({})


def input_series(targets: Iterable[Target]) -> list[dict[str, str]]:
    """Every sample of the pages, `up` included; a series ends where a page does not have it."""
    found: dict[str, list[str]] = {}
    for target in targets:
        scraped = {"job": target.job, "instance": target.instance, "namespace": target.namespace}
        scraped.update(target.more)
        for at, page in enumerate(target.pages):
            lines = [("up", (), float(page is not None)), *_samples(page or b"")]
            for name, labels, value in lines:
                # As a scrape that does not honour labels: those of the target win.
                own = {f"exported_{k}" if k in scraped else k: v for k, v in labels}
                values = found.setdefault(selector(name, own | scraped), [])
                missing = "stale" if values else "_"
                values += [missing] * (at - len(values))
                values += [repr(value)] if len(values) == at else []
        for seen in found.values():
            seen.extend(["stale"] * (len(target.pages) - len(seen)))
    return [{"series": series, "values": " ".join(values)} for series, values in found.items()]


def _samples(page: bytes) -> Iterator[tuple[str, tuple[tuple[str, str], ...], float]]:
    for raw in page.split(b"\n"):
        if raw and not raw.startswith(b"#") and (line := parse_line(raw)):
            # Edges as Prometheus 3 writes them, and the exporter.
            labels = tuple(
                (k, repr(float(v)) if k == "le" and v != "+Inf" else v) for k, v in line.series.labels
            )
            yield line.series.name, labels, line.value


def selector(name: str, labels: Mapping[str, str]) -> str:
    pairs = (f'{key}="{escape(value)}"' for key, value in sorted(labels.items()) if value)
    return f"{name}{{{', '.join(pairs)}}}"


def collected(target: Target, name: str) -> list[Sample]:
    """What the exporter, where it is called `name`, shows after the last page."""
    collector = TargetCollector(name, ENGINES, namespace=target.namespace, request_metrics=False)
    for at, page in enumerate(target.pages):
        collector.page(page or b"", float(STEP * at))
    return collector.samples


def expected(samples: Iterable[Sample]) -> dict[str, dict[str, float]]:
    """The exporter's series by name and selector, without `phase`: a split that needs the exporter."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for metric, labels, value in samples:
        named = {k: v for k, v in zip(metric.labels, labels, strict=True) if k != "phase"}
        if isinstance(value, Distribution):
            for name, more, number in _parts(metric, value):
                found[name][selector(name, named | more)] = number
        else:
            found[metric.name][selector(metric.name, named)] = value
    return found


def _parts(metric: c.Metric, value: Distribution) -> Iterator[tuple[str, dict[str, str], float]]:
    for edge, count in zip((*map(repr, value.edges), "+Inf"), value.counts, strict=True):
        yield f"{metric.name}_bucket", {"le": edge}, count
    yield f"{metric.name}_sum", {}, value.sum
    yield f"{metric.name}_count", {}, value.counts[-1]
