"""The request metrics that our plugin adds to an engine's page, under the catalogue's own names.

They have the engine's labels (`model_name`, `engine`) and, if the catalogue's metric has a label besides REQ,
that one.
"""

from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.engines.base import Engine, Rule, Source
from kvcache_exporter.model import OUTCOMES


class RequestFamily(NamedTuple):
    """One of the catalogue's metrics, at one value of its label besides REQ ("" if it has none)."""

    metric: Metric
    source: Source
    value: str = ""


def _families() -> tuple[RequestFamily, ...]:
    plain = (
        c.REQUEST_PROMPT_TOKENS,
        c.REQUEST_CACHED_TOKENS,
        c.REQUEST_OUTPUT_TOKENS,
        c.REQUEST_COMPUTED_TOKENS,
        c.REQUEST_CACHED_RATIO,
    )
    by_outcome = (c.REQUESTS, c.REQUEST_TTFT, c.REQUEST_DURATION)
    split = [
        *((metric, outcome) for metric in by_outcome for outcome in OUTCOMES),
        *((c.REQUEST_ERRORS, reason) for reason in c.REQUEST_ERROR_REASONS),
    ]
    return (
        *(RequestFamily(metric, Source(_bare(metric))) for metric in plain),
        *(
            RequestFamily(metric, Source(_bare(metric), ((metric.labels[-1], (value,)),)), value)
            for metric, value in split
        ),
    )


def _bare(metric: Metric) -> str:
    return metric.family.removeprefix(c.PREFIX)


REQUEST_FAMILIES = _families()
PLUGIN = Engine(
    name="plugin",
    prefixes=("kvcache_", "ray_kvcache_"),
    # Series with a source are an exporter's, not an engine's.
    foreign_labels=("source",),
    rules=tuple(Rule(family.metric, (family.source,)) for family in REQUEST_FAMILIES),
    bases=(),
    facts=(),
)
"""Not an engine that a page could be from, only names and how to read them."""
