"""Alerts on hit rates: compared with their past, with each other, and between replicas."""

from kvcache_alerts import recording as r
from kvcache_alerts.model import Alert, Condition, Parameter, hold, severity
from kvcache_alerts.promql import MODEL, TARGET_MODEL, labels, looked_up, series, total
from kvcache_exporter import catalogue as c

_LOGGED = total(("model_name",), r.SOURCE_MODEL_KNOWN_REQUESTS_RATE.record)
_UNLESS_LOGGED = f"unless on {labels(('model_name',))} {_LOGGED}"


def _mean_ratio(hits: str, all_of_them: str, window: str, floor: str = "0") -> str:
    return f"avg_over_time({hits}[{window}]) / (avg_over_time({all_of_them}[{window}]) > {floor})"


def _dropped(hits: str, all_of_them: str) -> str:
    """Lower than the mean of the last day, and lower than at the same hour yesterday."""
    recent = _mean_ratio(hits, all_of_them, "$window", "$floor")
    day = (
        f"(avg_over_time({hits}[$baseline] offset $offset) "
        f"/ (avg_over_time({all_of_them}[$baseline] offset $offset) > 0))"
    )
    yesterday = f"(avg_over_time({hits}[1h] offset 1d) / (avg_over_time({all_of_them}[1h] offset 1d) > 0))"
    return (
        f"({recent} < (1 - $drop) * {day} and {recent} < {day} - $points "
        f"and {all_of_them} offset $history) unless {recent} >= (1 - $drop) * {yesterday}"
    )


def _drop_parameters(floor: Parameter) -> tuple[Parameter, ...]:
    return (
        Parameter(
            "drop", "0.3", "Hit rates move by a tenth with the mix of requests; a third is a change.", "ratio"
        ),
        Parameter("points", "0.1", "A rate that was low already cannot fall far enough to matter.", "ratio"),
        floor,
        Parameter("window", "15m", "Long enough that single requests do not move it.", "duration"),
        Parameter("baseline", "1d", "Covers each hour of a day once.", "duration"),
        Parameter("offset", "1h", "Keeps the drop itself out of what it is compared with.", "duration"),
        Parameter("history", "6h", "A younger installation has no usual hit rate yet.", "duration"),
        hold("15m", "Deployments and cache flushes recover within that time."),
        severity("warning", "A hit rate alone never pages."),
    )


TOKEN_RATIO_DROPPED = Alert(
    name="KVCacheTokenHitRatioDropped",
    fires="A model's token-weighted hit rate over 15 minutes is far below its mean of the last day, and "
    "was higher at the same hour yesterday; with traffic.",
    summary="A model's token-weighted hit rate is far below its own past.",
    description="{{ $labels.model_name }} serves {{ $value | humanizePercentage }} of its prompt tokens "
    "from the cache. Look for what changed: prompt template, routing, restarts, memory for the cache.",
    board="kvcache-overview",
    conditions=(
        Condition(
            _dropped(r.MODEL_CACHED_PROMPT_TOKENS_RATE.record, r.MODEL_MEASURED_PROMPT_TOKENS_RATE.record)
        ),
    ),
    parameters=_drop_parameters(
        Parameter("floor", "100", "Prompt tokens a second; below it a few requests make the rate.")
    ),
)

_LOGGED_REQUESTS_DROPPED = _dropped(
    r.SOURCE_MODEL_REQUEST_HITS_RATE.record, r.SOURCE_MODEL_KNOWN_REQUESTS_RATE.record
)
_ENGINE_REQUESTS_DROPPED = _dropped(r.MODEL_ENGINE_HITS_RATE.record, r.MODEL_ENGINE_REQUESTS_RATE.record)

REQUEST_RATIO_DROPPED = Alert(
    name="KVCacheRequestHitRatioDropped",
    fires="The share of requests that skip prefill over 15 minutes is far below its mean of the last day, "
    "and was higher at the same hour yesterday; from logs, else from the engines' histograms.",
    summary="Far fewer requests skip prefill than before.",
    description="{{ $value | humanizePercentage }} of the requests to {{ $labels.model_name }} skip "
    "prefill. Look for what changed: prompt template, routing, restarts, memory for the cache.",
    board="kvcache-overview",
    conditions=(
        Condition(f"({_LOGGED_REQUESTS_DROPPED}) or (({_ENGINE_REQUESTS_DROPPED}) {_UNLESS_LOGGED})"),
    ),
    parameters=_drop_parameters(
        Parameter("floor", "0.1", "90 requests in 15 minutes; below it a few requests make the rate.")
    ),
)

_SOURCE = ("source", "model_name")
RATIOS_DIVERGE = Alert(
    name="KVCacheHitRatiosDiverge",
    fires="The token-weighted hit rate is far above the request-weighted one, with traffic: tokens look "
    "cached, requests still wait.",
    summary="Tokens look cached, but most requests still wait for prefill.",
    description="{{ $labels.model_name }}: the token-weighted hit rate is {{ $value | humanizePercentage }} "
    "above the share of requests that skip prefill. A few long prompts make the first; watch the second.",
    board="kvcache-requests",
    conditions=(
        Condition(
            f"({r.SOURCE_MODEL_TOKEN_HIT_RATIO.record} - {r.SOURCE_MODEL_REQUEST_HIT_RATIO.record} > $gap "
            f"and {r.SOURCE_MODEL_KNOWN_REQUESTS_RATE.record} > $floor) "
            f"or (({r.MODEL_TOKEN_HIT_RATIO.record} - {r.MODEL_ENGINE_REQUEST_HIT_RATIO.record} > $gap "
            f"and {r.MODEL_ENGINE_REQUESTS_RATE.record} > $floor) {_UNLESS_LOGGED})"
        ),
    ),
    parameters=(
        Parameter(
            "gap", "0.4", "A real conversation trace had 0.24; above 0.4 one number misleads.", "ratio"
        ),
        Parameter("floor", "0.1", "30 requests in 5 minutes; below it both rates are chance."),
        hold("30m", "Nothing breaks; it is to be known, not to be fixed at once."),
        severity("info", "It says how to read the hit rate."),
    ),
)

_NOT_COLD = f"unless on {labels(('target',))} {series(c.WARM)} == 0"
_REPLICA_RATIO = (
    "("
    + _mean_ratio(
        r.TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE.record,
        r.TARGET_MODEL_PROMPT_TOKENS_RATE.record,
        "$window",
        "$floor",
    )
    + f" {_NOT_COLD})"
)


def _over_replicas(operator: str) -> str:
    return total(MODEL, _REPLICA_RATIO, operator=operator)


REPLICA_IMBALANCE = Alert(
    name="KVCacheReplicaImbalance",
    fires="Warm replicas of one model, each with traffic, have very different token-weighted hit rates.",
    summary="Replicas of one model have very different hit rates.",
    description="Best and worst replica of {{ $labels.model_name }} are {{ $value | humanizePercentage }} "
    "apart in hit rate. Requests with the same prefix are probably not routed to the same replica.",
    board="kvcache-overview",
    conditions=(
        Condition(
            f"{_over_replicas('max')} - {_over_replicas('min')} > $gap "
            f"and {_over_replicas('count')} >= $replicas"
        ),
    ),
    parameters=(
        Parameter(
            "gap", "0.4", "Round robin gives replicas alike rates; a gap this wide has a cause.", "ratio"
        ),
        Parameter("floor", "50", "Prompt tokens a second of each replica; an idle one has no rate."),
        Parameter("replicas", "2", "One replica cannot differ from itself."),
        Parameter("window", "15m", "Long enough that single requests do not move it.", "duration"),
        hold("30m", "A new replica needs some time to fill its cache."),
        severity("info", "Nothing is broken; there is a gain to be had."),
    ),
)

CACHING_DISABLED = Alert(
    name="KVCachePrefixCachingDisabled",
    fires="The engine reports that prefix caching is disabled, and there is traffic.",
    summary="A replica with traffic runs without prefix caching.",
    description="{{ $labels.target }} ({{ $labels.model_name }}) says that prefix caching is off "
    "(kvcache_prefix_caching_enabled is {{ $value }}) and serves "
    + looked_up(f"{r.TARGET_MODEL_PROMPT_TOKENS_RATE.record}%s", ("target", "model_name"), "humanize")
    + " prompt tokens a second, all computed.",
    board="kvcache-overview",
    conditions=(
        Condition(
            f"{total(TARGET_MODEL, series(c.PREFIX_CACHING_ENABLED), operator='max')} == 0 "
            f"and {r.TARGET_MODEL_PROMPT_TOKENS_RATE.record} > $floor"
        ),
    ),
    parameters=(
        Parameter("floor", "100", "Prompt tokens a second; an idle replica loses nothing."),
        hold("15m", "It is a setting: minutes do not matter, trials should not alert."),
        severity("warning", "Every prompt is computed in full."),
    ),
)

ALERTS = (TOKEN_RATIO_DROPPED, REQUEST_RATIO_DROPPED, RATIOS_DIVERGE, REPLICA_IMBALANCE, CACHING_DISABLED)
