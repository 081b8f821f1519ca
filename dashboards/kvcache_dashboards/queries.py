"""Builds PromQL from the catalogue's metrics, so that a query cannot name a series that does not exist."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcache_alerts.model import RecordingRule
from kvcache_exporter.catalogue import Metric

INTERVAL = "$__rate_interval"
RANGE = "$__range"
VARIABLES = ("namespace", "model_name", "target", "engine")
"""Labels that a variable of the same name filters."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Writes selectors that are filtered by the board's variables."""

    cluster_label: str = "cluster"
    variables: tuple[str, ...] = VARIABLES

    def series(self, metric: Metric, suffix: str = "", **where: str) -> str:
        """A selector; a value of `where` that begins with ! is excluded."""
        unknown = [label for label in where if label not in (*metric.labels, "le")]
        if unknown:
            raise ValueError(f"{metric.name} has no label {', '.join(unknown)}; it has {metric.labels}")
        return self.select(metric.name + suffix, metric.labels, **where)

    def select(self, name: str, labels: Sequence[str], **where: str) -> str:
        """A selector for a series that is not in the catalogue, such as a recorded one."""
        cluster = [f'{self.cluster_label}=~"$cluster"'] if self.cluster_label else []
        narrowed = [
            f'{label}=~"${label}"' for label in labels if label in self.variables and label not in where
        ]
        exact = [f'{label}{"!" * (value[:1] == "!")}="{value.lstrip("!")}"' for label, value in where.items()]
        matchers = ", ".join([*cluster, *narrowed, *exact])
        return f"{name}{{{matchers}}}" if matchers else name

    def any_of(self, *metrics: Metric) -> str:
        """A selector that matches any of several metrics."""
        names = "|".join(metric.name for metric in metrics)
        cluster = self.select("", ()).strip("{}")
        return "{" + ", ".join([f'__name__=~"{names}"', *filter(None, [cluster])]) + "}"

    def recorded(self, rule: RecordingRule, level: Sequence[str], **where: str) -> str:
        """A selector of a recorded series; `level` are the labels that its level keeps."""
        return self.select(rule.record, level, **where)

    def rate(self, metric: Metric, by: Sequence[str] = (), **where: str) -> str:
        """Increase per second, summed over all other labels."""
        return total(f"rate({self.series(metric, **where)}[{INTERVAL}])", by)

    def increase(self, metric: Metric, by: Sequence[str] = (), **where: str) -> str:
        return total(f"increase({self.series(metric, **where)}[{INTERVAL}])", by)

    def rise(self, metric: Metric, by: Sequence[str] = (), **where: str) -> str:
        """Increase over the dashboard's time range."""
        return total(f"increase({self.series(metric, **where)}[{RANGE}])", by)

    def quantile(self, q: float, metric: Metric, by: Sequence[str] = (), **where: str) -> str:
        buckets = f"rate({self.series(metric, '_bucket', **where)}[{INTERVAL}])"
        return f"histogram_quantile({q:g}, {total(buckets, ('le', *by))})"

    def buckets(self, metric: Metric, **where: str) -> str:
        """Observations in each bucket, for a heatmap."""
        return total(f"increase({self.series(metric, '_bucket', **where)}[{INTERVAL}])", ("le",))

    def share_above(self, edge: float, metric: Metric, by: Sequence[str] = (), **where: str) -> str:
        """Share of observations above one of the histogram's edges."""
        below = total(f"rate({self.series(metric, '_bucket', **where, le=edge_text(edge))}[{INTERVAL}])", by)
        count = total(f"rate({self.series(metric, '_count', **where)}[{INTERVAL}])", by)
        return f"1 - {below} / ({count} > 0)"


def edge_text(edge: float) -> str:
    """The edge as the exporter writes it in `le`, which Prometheus compares as text."""
    return str(float(edge))


def total(expression: str, by: Sequence[str] = ()) -> str:
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


def highest(expression: str, by: Sequence[str] = ()) -> str:
    return f"max by ({', '.join(by)}) ({expression})" if by else f"max({expression})"


def top(number: int, expression: str) -> str:
    """The largest series only, so that panels stay readable with many replicas."""
    return f"topk({number}, {expression})"


def bottom(number: int, expression: str) -> str:
    return f"bottomk({number}, {expression})"


def ratio(numerator: str, denominator: str) -> str:
    """A ratio without a sample where the denominator is 0."""
    return f"{numerator} / ({denominator} > 0)"


def or_zero(expression: str, like: str) -> str:
    """The expression, or 0 where only `like` has a series: no full hit yet is a hit rate of 0."""
    return f"({expression} or 0 * {like})"


def among(expression: str, keys: Sequence[str], leading: str) -> str:
    """The series whose keys the leading expression also has."""
    return f"({expression}) and on ({', '.join(keys)}) ({leading})"
