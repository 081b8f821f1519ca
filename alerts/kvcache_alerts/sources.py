"""Alerts on the sources of the numbers: targets, their pages, logs and KV events."""

from kvcache_alerts import recording as r
from kvcache_alerts.model import Alert, Condition, Parameter, hold, severity
from kvcache_alerts.promql import labels, series, total
from kvcache_exporter import catalogue as c

_TARGET = ("target",)


def _top_reason(failures: c.Metric, window: str) -> str:
    """A template for the most frequent reason."""
    label = failures.labels[0]
    top = f"printf `topk(1, increase({failures.name}{{{label}=%q}}[{window}]))` $labels.{label} | query"
    return f"{{{{ with {top} }}}}{{{{ . | first | label `reason` }}}}{{{{ else }}}}unknown{{{{ end }}}}"


_EXPORTERS = f"count by ($keep) ({series(c.BUILD_INFO)})"

TARGET_DOWN = Alert(
    name="KVCacheTargetDown",
    fires="The exporter is up, but a target has no usable page.",
    summary="The exporter gets no usable page from an engine.",
    description="{{ $labels.target }}{{ with $labels.engine }} ({{ . }}){{ end }} gives no usable page "
    "(target_up is {{ $value }}); reason of the last failures: "
    + _top_reason(c.TARGET_SCRAPE_FAILURES, "10m")
    + ".",
    board="kvcache-exporter",
    conditions=(Condition(f"{total(('target', 'engine'), series(c.TARGET_UP), operator='max')} == 0"),),
    parameters=(
        hold("5m", "Engines take minutes to load a model after a planned restart."),
        severity("critical", "The engine is down, or nobody sees what it does."),
    ),
)

_UP = series(c.TARGET_UP)
_COUNT = f"count by ($keep) ({_UP})"
_BEFORE = f"count by ($keep) ({_UP} offset $offset)"
_LOGS_ONLY = f"count({series(c.LOG_LINES)}) unless on () count(last_over_time({_UP}[1d]))"

TARGETS_MISSING = Alert(
    name="KVCacheTargetsMissing",
    fires="The exporter has fewer targets than an hour ago, or none although it had some or reads no logs "
    "either.",
    summary="The exporter sees fewer engines than before, or none.",
    description="{{ $value | humanize }} targets fewer than {offset} ago, or none at all. Replicas that are "
    "not found raise no other alert: see whether discovery still lists them.",
    board="kvcache-exporter",
    conditions=(
        Condition(
            f"({_BEFORE} - ({_COUNT} or 0 * {_BEFORE}) > $tolerated and {_EXPORTERS}) "
            f"or (absent({_UP}) unless on () ({_LOGS_ONLY}) unless on () {_UP} offset $offset "
            f"and on () {_EXPORTERS})"
        ),
    ),
    parameters=(
        Parameter("tolerated", "0", "Raise it where replicas are scaled down on purpose."),
        Parameter(
            "offset", "1h", "Long enough to be seen, short enough to follow intended changes.", "duration"
        ),
        hold("10m", "Rolling updates replace replicas one by one."),
        severity("warning", "What is not scraped raises no other alert."),
    ),
)

_MISSING = total(_TARGET, series(c.TARGET_MISSING), operator="max")
_DEPRECATED = total(_TARGET, series(c.TARGET_DEPRECATED), operator="max")

ADAPTER_DRIFT = Alert(
    name="KVCacheAdapterDrift",
    fires="A target's page lacks families that its engine's table needs, or has renamed ones.",
    summary="An engine's page differs from what the exporter knows of it.",
    description="{{ $value }} families that the exporter reads are missing or renamed on the page of "
    "{{ $labels.target }}; some numbers are absent or approximate.",
    board="kvcache-exporter",
    conditions=(Condition(f"{_MISSING} > 0 or {_DEPRECATED} > 0"),),
    parameters=(
        hold("1h", "It changes only when an engine is updated."),
        severity("info", "Nothing is broken yet: update the exporter or the engine."),
    ),
)

_RECOUNTED = 'reason="lookups_recounted"'
_LOOKUP_BASIS = series(c.TARGET_INFO, 'hit_basis="lookup"')


def _anomalies(matcher: str) -> str:
    return total(_TARGET, f"increase({series(c.DATA_ANOMALIES, matcher)}[$window])", "reason")


DATA_ANOMALY = Alert(
    name="KVCacheDataAnomaly",
    fires="Values on a target's page are persistently wrong or misleading; the label reason shows why. "
    "Recounted lookups only count if the hit rate is based on them.",
    summary="An engine reports values that cannot be right.",
    description="{{ $labels.target }}: {{ $value | humanize }} anomalies of reason {{ $labels.reason }} in "
    "{window}. Hit rates of this target may be missing or wrong for that time.",
    board="kvcache-exporter",
    conditions=(
        Condition(
            f"({_anomalies(_RECOUNTED.replace('=', '!='))} or "
            f"({_anomalies(_RECOUNTED)} and on {labels(_TARGET)} {_LOOKUP_BASIS})) > $floor"
        ),
    ),
    parameters=(
        Parameter("floor", "0", "Every anomaly makes a number untrue."),
        Parameter("window", "5m", "Shorter than `for`, so that one odd page is over by then.", "duration"),
        hold("10m", "One odd page after a restart is no fault."),
        severity("warning", "Decisions are made on these numbers."),
    ),
)

_SILENT = f"time() - {total(('source',), series(c.LOG_LAST_RECORD), operator='max')}"
_SEEN = f"({_SILENT} > $limit_seconds and {_SILENT} < $memory_seconds)"
_ON_SOURCE = labels(("source",))
_UNREAD = total(("source",), f"min_over_time({series(c.LOG_LAG)}[5m])", operator="max")
_UNREAD_MESSAGES = total(("source",), f"min_over_time({series(c.LOG_LAG_MESSAGES)}[5m])", operator="max")
_LINES = total(("source",), f"increase({series(c.LOG_LINES)}[$limit])")
_BUSY_MODELS = f"{total(('model_name',), r.MODEL_FINISHED_REQUESTS_RATE.record)} > $requests"
_SOURCE_MODELS = total(("source", "model_name"), series(c.REQUESTS))

LOG_STALLED = Alert(
    name="KVCacheLogStalled",
    fires="A log that had records has had none for a while, although its file grows or the engines finish "
    "requests to its models.",
    summary="A usage log gives no more records though there is traffic.",
    description="{{ $labels.source }}: the newest record is {{ $value | humanizeDuration }} old, though its "
    "file grows or engines finish requests. Outcomes, time to first token and cost stand still.",
    board="kvcache-exporter",
    conditions=(
        Condition(
            f"{_SEEN} and ({_UNREAD} > 0 or {_UNREAD_MESSAGES} > 0 or {_LINES} > $lines or "
            f"count by {_ON_SOURCE} ({_SOURCE_MODELS} and on {labels(('model_name',))} {_BUSY_MODELS}))"
        ),
    ),
    parameters=(
        Parameter("limit", "10m", "Longer than any log buffer flushes.", "duration"),
        Parameter("memory", "1d", "A log that ended yesterday was taken out on purpose.", "duration"),
        Parameter("lines", "20", "Other lines than requests may trickle into a log at night."),
        Parameter("requests", "0.05", "Requests a second the engines finish; a trickle may be probes."),
        hold("0m", "The limit is the waiting time."),
        severity("warning", "The page looks calm because it is blind."),
    ),
)

_FAILURES = total(("source",), f"rate({series(c.LOG_PARSE_FAILURES)}[$window])")
_ALL_LINES = total(("source",), f"rate({series(c.LOG_LINES)}[$window])")

LOG_PARSE_FAILURES = Alert(
    name="KVCacheLogParseFailures",
    fires="Too large a share of a log's lines has no usable record, given enough lines.",
    summary="Many lines of a usage log cannot be read.",
    description="{{ $value | humanizePercentage }} of the lines of {{ $labels.source }} give no record, most "
    "for the reason " + _top_reason(c.LOG_PARSE_FAILURES, "{window}") + ". Its format has probably changed.",
    board="kvcache-exporter",
    conditions=(Condition(f"{_FAILURES} / ({_ALL_LINES} > $floor) > $share"),),
    parameters=(
        Parameter("share", "0.05", "A few broken lines are normal where writers are killed.", "ratio"),
        Parameter("floor", "0.05", "45 lines in 15 minutes; below it one line is a share."),
        Parameter("window", "15m", "Covers slow logs.", "duration"),
        hold("15m", "A rotated or copied file can hold half lines once."),
        severity("warning", "Counts from this log are too low."),
    ),
)

_LOST = series(c.EVENTS_LOST)
_NEWLY_LOST = (
    f"({_LOST} unless {_LOST} offset $window) and on {labels(_TARGET)} {series(c.EVENTS)} offset $window"
)

EVENTS_LOST = Alert(
    name="KVCacheEventsLost",
    fires="Batches of KV events of a target were lost, even with replay.",
    summary="KV events of an engine were lost.",
    description="{{ $labels.target }}: {{ $value | humanize }} batches of KV events were lost in {window}. "
    "Resident and re-warmed blocks are approximate until the cache is cleared.",
    board="kvcache-exporter",
    conditions=(
        Condition(
            f"{total(_TARGET, f'increase({_LOST}[$window])')} > $floor "
            f"or {total(_TARGET, _NEWLY_LOST)} > $floor"
        ),
    ),
    parameters=(
        Parameter("floor", "0", "Every lost batch leaves the block index wrong."),
        Parameter("window", "15m", "Keeps a single loss visible for a while.", "duration"),
        hold("5m", "Enough to group several targets into one notice."),
        severity("info", "Only the block counts suffer."),
    ),
)

ALERTS = (
    TARGET_DOWN,
    TARGETS_MISSING,
    ADAPTER_DRIFT,
    DATA_ANOMALY,
    LOG_STALLED,
    LOG_PARSE_FAILURES,
    EVENTS_LOST,
)
