"""Panels of the exporter board on logs and KV events."""

from grafana_foundation_sdk.builders import timeseries

from kvcache_dashboards import style as s
from kvcache_dashboards.queries import Scope
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c


def lag(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Bytes not read yet",
        "Bytes in the files of each log that are not read yet. A line that climbs: the log grows faster "
        "than it is read.",
        s.BYTES,
        Query(q.series(c.LOG_LAG), "{{source}}"),
        no_value=s.NO_LOG,
    )


def record_age(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Age of the newest record",
        "By the record's own clock. Grows where nothing is logged, the file is not found, or clocks differ.",
        s.SECONDS,
        Query(f"time() - {q.series(c.LOG_LAST_RECORD)}", "{{source}}"),
        no_value=s.NO_LOG,
    )


def lines(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Lines read",
        "Complete lines read from each log.",
        s.PER_SECOND,
        Query(q.rate(c.LOG_LINES, ("source",)), "{{source}}"),
        no_value=s.NO_LOG,
    )


def parse_failures(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Lines that gave no record",
        "By reason. no_usage alone may be right: health checks and other calls have no tokens.",
        s.PER_SECOND,
        Query(q.rate(c.LOG_PARSE_FAILURES, ("source", "reason")), "{{source}} {{reason}}"),
        no_value="Every line gave a record",
    )


def rotations(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Rotations",
        "Times a file of each log was rotated or truncated.",
        s.COUNT,
        Query(q.increase(c.LOG_ROTATIONS, ("source",)), "{{source}}"),
        no_value="No rotation seen",
    )


def events(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "KV events",
        "Blocks stored, blocks removed and caches cleared, as the engines report them.",
        s.PER_SECOND,
        Query(q.rate(c.EVENTS, ("event",)), "{{event}}"),
        no_value=s.NO_EVENTS,
    )


def events_lost(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Lost batches of KV events",
        "Batches that an engine sent and that were lost, even with replay. Block counts are then too low.",
        s.COUNT,
        Query(q.increase(c.EVENTS_LOST, ("target",)), "{{target}}"),
        no_value=s.NO_EVENTS,
    )


def followed_blocks(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Share of blocks followed",
        "Below 1 the exporter follows a sample of the blocks, to keep its memory bounded: cached and "
        "re-warmed blocks are then estimates.",
        s.RATIO,
        Query(f"min by (target, blocks) ({q.series(c.TRACKED_BLOCKS)})", "{{target}} {{blocks}}"),
        no_value=s.NO_EVENTS,
    ).max(1)
