"""The recorded series that alerts and boards read, named `level:metric:operations`.

Levels: `target_model` keeps target, namespace and model_name (its ranks summed), `model` sums the replicas of
a model, `source_model` keeps the log and the provider. All keep the labels of the parameter `keep_labels`.
Numerators and denominators are recorded apart, so that a ratio over any longer window is
`avg_over_time(numerator) / avg_over_time(denominator)`. To add one, write it here; `RULES` collects them.
"""

from typing import Literal

from kvcache_alerts.model import RecordingRule
from kvcache_alerts.promql import (
    LOG_MODEL,
    MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    labels,
    rate_since_birth,
    ratio,
    series,
    share,
    total,
)
from kvcache_exporter import catalogue as c

WINDOW_SECONDS = 300
_LEVELS = {
    TARGET_MODEL: "target_model",
    MODEL: "model",
    SOURCE_MODEL: "source_model",
    LOG_MODEL: "model",
}
_ALL: list[RecordingRule] = []


def _rule(level: tuple[str, ...], name: str, operations: str, expr: str, about: str) -> RecordingRule:
    rule = RecordingRule(f"{_LEVELS[level]}:{name}:{operations}", expr, about)
    _ALL.append(rule)
    return rule


def _rated(level: tuple[str, ...], metric: c.Metric, *more: str, part: str = "") -> str:
    return total(level, f"rate({series(metric, part=part)}[5m])", *more)


def _rate(level: tuple[str, ...], metric: c.Metric, about: str, *more: str) -> RecordingRule:
    """The rate of a counter, by the labels of the level and `more`."""
    return _rule(level, metric.name.removesuffix("_total"), "rate5m", _rated(level, metric, *more), about)


def _late_rate(metric: c.Metric, about: str, *more: str) -> RecordingRule:
    """The rate of a counter of a replica that the engine creates only at its first increment."""
    expr = rate_since_birth(TARGET_MODEL, metric, WINDOW_SECONDS, *more)
    return _rule(TARGET_MODEL, metric.name.removesuffix("_total"), "rate5m", expr, about)


def _buckets(level: tuple[str, ...], histogram: c.Metric, about: str, *more: str) -> RecordingRule:
    expr = _rated(level, histogram, *more, "le", part="bucket")
    return _rule(level, f"{histogram.name}_bucket", "rate5m", expr, about)


def _ratio(
    level: tuple[str, ...], name: str, part: RecordingRule | str, whole: RecordingRule | str, about: str
) -> RecordingRule:
    expr = share(*(side if isinstance(side, str) else side.record for side in (part, whole)))
    return _rule(level, name, "ratio_rate5m", expr, about)


def _gauge(metric: c.Metric, operator: Literal["sum", "max"], about: str, *more: str) -> RecordingRule:
    """A gauge of a replica, over its ranks."""
    expr = total(TARGET_MODEL, series(metric), *more, operator=operator)
    return _rule(TARGET_MODEL, metric.name, operator, expr, about)


def _over_replicas(rule: RecordingRule, about: str, *more: str) -> RecordingRule:
    """The series of a replica, over all replicas of its model."""
    return _over(MODEL, rule, about, *more)


def _over_logs(rule: RecordingRule, about: str, *more: str) -> RecordingRule:
    """The series of a log, over all logs that have the model."""
    return _over(LOG_MODEL, rule, about, *more)


def _over(level: tuple[str, ...], rule: RecordingRule, about: str, *more: str) -> RecordingRule:
    _, name, operations = rule.record.split(":")
    operator = "max" if operations == "max" else "sum"
    return _rule(level, name, operations, total(level, rule.record, *more, operator=operator), about)


# Tokens, by replica and by model.
TARGET_MODEL_PROMPT_TOKENS_RATE = _rate(TARGET_MODEL, c.PROMPT_TOKENS, "Prompt tokens a second of a replica.")
TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE = _rate(
    TARGET_MODEL,
    c.CACHED_PROMPT_TOKENS,
    "Prompt tokens a second that a replica served from its cache, all tiers; absent where the engine only "
    "counts lookups.",
)
# Where the hit basis is lookup there are prompt tokens and no cached ones: they may not dilute the ratio.
_MEASURED = (
    f"{TARGET_MODEL_PROMPT_TOKENS_RATE.record} and on {labels(TARGET_MODEL)} "
    f"{TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE.record}"
)
TARGET_MODEL_TOKEN_HIT_RATIO = _ratio(
    TARGET_MODEL,
    "kvcache_token_hit",
    TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE,
    TARGET_MODEL_PROMPT_TOKENS_RATE,
    "Token-weighted hit rate of a replica; no sample without traffic, nor where an engine counts more cached "
    "than prompt tokens.",
)
MODEL_PROMPT_TOKENS_RATE = _over_replicas(
    TARGET_MODEL_PROMPT_TOKENS_RATE, "Prompt tokens a second of a model."
)
MODEL_MEASURED_PROMPT_TOKENS_RATE = _rule(
    MODEL,
    "kvcache_measured_prompt_tokens",
    "rate5m",
    total(MODEL, _MEASURED),
    "Prompt tokens a second of those replicas of a model that count cached tokens.",
)
MODEL_CACHED_PROMPT_TOKENS_RATE = _over_replicas(
    TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE,
    "Prompt tokens a second that a model's replicas served from their caches.",
)
MODEL_TOKEN_HIT_RATIO = _ratio(
    MODEL,
    "kvcache_token_hit",
    MODEL_CACHED_PROMPT_TOKENS_RATE,
    MODEL_MEASURED_PROMPT_TOKENS_RATE,
    "Token-weighted hit rate of a model over all its replicas.",
)

# Requests by the engine's histograms, exact for prompts longer than the threshold.
_RANK = (*TARGET_MODEL, "engine_rank")


def _at_threshold(histogram: c.Metric) -> str:
    """The rate of the one bucket whose edge is the engine's threshold; Prometheus 3 writes le="50.0"."""
    rate = f"rate({series(histogram, part='bucket')}[5m])"
    bucket = f'label_replace({rate}, "le", "$$1", "le", "(.+)[.]0")'
    edge = f'count_values by {labels(_RANK)} ("le", {series(c.REQUEST_HIT_THRESHOLD)})'
    return total(TARGET_MODEL, f"{bucket} and on {labels(_RANK, 'le')} {edge}")


TARGET_MODEL_SHORT_REQUESTS_RATE = _rule(
    TARGET_MODEL,
    "kvcache_engine_short_requests",
    "rate5m",
    _at_threshold(c.ENGINE_PROMPT_TOKENS),
    "Requests a second whose prompt is too short to tell a hit from a miss.",
)
TARGET_MODEL_ENGINE_HITS_RATE = _rule(
    TARGET_MODEL,
    "kvcache_engine_request_hits",
    "rate5m",
    f"{_at_threshold(c.ENGINE_COMPUTED_PROMPT_TOKENS)} - {TARGET_MODEL_SHORT_REQUESTS_RATE.record}",
    "Requests a second that skipped prefill, of those with a prompt longer than the threshold.",
)
TARGET_MODEL_ENGINE_REQUESTS_RATE = _rule(
    TARGET_MODEL,
    "kvcache_engine_long_requests",
    "rate5m",
    f"{_rated(TARGET_MODEL, c.ENGINE_PROMPT_TOKENS, part='count')} - "
    f"{TARGET_MODEL_SHORT_REQUESTS_RATE.record}",
    "Requests a second with a prompt longer than the threshold.",
)
TARGET_MODEL_ENGINE_REQUEST_HIT_RATIO = _ratio(
    TARGET_MODEL,
    "kvcache_engine_request_hit",
    TARGET_MODEL_ENGINE_HITS_RATE,
    TARGET_MODEL_ENGINE_REQUESTS_RATE,
    "Request-weighted hit rate of a replica from the engine's own histograms.",
)
MODEL_ENGINE_HITS_RATE = _over_replicas(
    TARGET_MODEL_ENGINE_HITS_RATE,
    "Requests a second of a model that skipped prefill, by the engines' histograms.",
)
MODEL_ENGINE_REQUESTS_RATE = _over_replicas(
    TARGET_MODEL_ENGINE_REQUESTS_RATE,
    "Requests a second of a model with a prompt longer than the threshold.",
)
MODEL_ENGINE_REQUEST_HIT_RATIO = _ratio(
    MODEL,
    "kvcache_engine_request_hit",
    MODEL_ENGINE_HITS_RATE,
    MODEL_ENGINE_REQUESTS_RATE,
    "Request-weighted hit rate of a model from the engines' own histograms.",
)

# Requests by the logs.
SOURCE_MODEL_REQUESTS_RATE = _rate(
    SOURCE_MODEL, c.REQUESTS, "Requests a second of a log by outcome.", "outcome"
)
SOURCE_MODEL_KNOWN_REQUESTS_RATE = _rule(
    SOURCE_MODEL,
    "kvcache_known_requests",
    "rate5m",
    total(SOURCE_MODEL, f'{SOURCE_MODEL_REQUESTS_RATE.record}{{outcome!="unknown"}}'),
    "Requests a second of a log whose outcome is known.",
)
SOURCE_MODEL_REQUEST_HITS_RATE = _rule(
    SOURCE_MODEL,
    "kvcache_request_hits",
    "rate5m",
    total(SOURCE_MODEL, f'{SOURCE_MODEL_REQUESTS_RATE.record}{{outcome="full"}}')
    + f" or 0 * {SOURCE_MODEL_KNOWN_REQUESTS_RATE.record}",
    "Requests a second of a log that skipped prefill; 0 where none ever did.",
)
SOURCE_MODEL_REQUEST_HIT_RATIO = _ratio(
    SOURCE_MODEL,
    "kvcache_request_hit",
    SOURCE_MODEL_REQUEST_HITS_RATE,
    SOURCE_MODEL_KNOWN_REQUESTS_RATE,
    "Request-weighted hit rate of a log: full hits by all requests of known outcome.",
)
SOURCE_MODEL_PROMPT_TOKENS_RATE = _rate(
    SOURCE_MODEL, c.REQUEST_PROMPT_TOKENS, "Prompt tokens a second of a log."
)
SOURCE_MODEL_CACHED_TOKENS_RATE = _rate(
    SOURCE_MODEL,
    c.REQUEST_CACHED_TOKENS,
    "Prompt tokens a second of a log that were served from the cache.",
)
SOURCE_MODEL_TOKEN_HIT_RATIO = _ratio(
    SOURCE_MODEL,
    "kvcache_request_token_hit",
    SOURCE_MODEL_CACHED_TOKENS_RATE,
    SOURCE_MODEL_PROMPT_TOKENS_RATE,
    "Token-weighted hit rate of a log, over the same requests as its request-weighted one.",
)
MODEL_REQUESTS_RATE = _over_logs(
    SOURCE_MODEL_REQUESTS_RATE, "Requests a second of a model by outcome, over all logs.", "outcome"
)
MODEL_REQUEST_HIT_RATIO = _ratio(
    LOG_MODEL,
    "kvcache_request_hit",
    total(LOG_MODEL, SOURCE_MODEL_REQUEST_HITS_RATE.record),
    total(LOG_MODEL, SOURCE_MODEL_KNOWN_REQUESTS_RATE.record),
    "Request-weighted hit rate of a model over all logs.",
)
MODEL_REQUEST_TOKEN_HIT_RATIO = _ratio(
    LOG_MODEL,
    "kvcache_request_token_hit",
    total(LOG_MODEL, SOURCE_MODEL_CACHED_TOKENS_RATE.record),
    total(LOG_MODEL, SOURCE_MODEL_PROMPT_TOKENS_RATE.record),
    "Token-weighted hit rate of a model over all logs.",
)

# Time to first token. Never one mixture of hits and misses.
SOURCE_MODEL_TTFT_BUCKETS = _buckets(
    SOURCE_MODEL, c.REQUEST_TTFT, "Buckets of time to first token of a log by outcome.", "outcome"
)
MODEL_TTFT_BUCKETS = _over_logs(
    SOURCE_MODEL_TTFT_BUCKETS,
    "Buckets of time to first token of a model by outcome, over all logs.",
    "outcome",
    "le",
)
TARGET_MODEL_ENGINE_TTFT_BUCKETS = _buckets(
    TARGET_MODEL,
    c.ENGINE_TTFT,
    "Buckets of a replica's time to first token by phase, cold or warm.",
    "phase",
)
MODEL_ENGINE_TTFT_BUCKETS = _over_replicas(
    TARGET_MODEL_ENGINE_TTFT_BUCKETS,
    "Buckets of a model's time to first token by phase, cold or warm.",
    "phase",
    "le",
)

# Pressure.
TARGET_MODEL_PREEMPTIONS_RATE = _late_rate(c.PREEMPTIONS, "Preemptions or retractions a second of a replica.")
MODEL_PREEMPTIONS_RATE = _over_replicas(
    TARGET_MODEL_PREEMPTIONS_RATE, "Preemptions or retractions a second of a model."
)
TARGET_MODEL_FINISHED_REQUESTS_RATE = _rate(
    TARGET_MODEL, c.ENGINE_REQUESTS, "Requests a second that a replica finished."
)
MODEL_FINISHED_REQUESTS_RATE = _over_replicas(
    TARGET_MODEL_FINISHED_REQUESTS_RATE, "Requests a second that a model finished."
)
TARGET_MODEL_EVICTED_TOKENS_RATE = _late_rate(
    c.EVICTED_TOKENS,
    "Tokens a second that a replica dropped from a tier, demotions to a slower tier included.",
    "tier",
)
MODEL_EVICTED_TOKENS_RATE = _over_replicas(
    TARGET_MODEL_EVICTED_TOKENS_RATE,
    "Tokens a second that a model's replicas dropped from a tier.",
    "tier",
)
TARGET_MODEL_STORED_TOKENS_RATE = _late_rate(
    c.STORED_TOKENS, "Tokens a second that a replica copied into a tier from a faster one.", "tier"
)
TARGET_MODEL_REWARMED_BLOCKS_RATE = _rate(
    TARGET_MODEL,
    c.REWARMED_BLOCKS,
    "Blocks a second that a replica stored again after it had removed them.",
)
TARGET_MODEL_STORED_BLOCKS_RATE = _rate(
    TARGET_MODEL, c.STORED_BLOCKS, "Blocks a second that a replica stored in a tier.", "tier"
)
TARGET_MODEL_EVICTED_BLOCKS_RATE = _rate(
    TARGET_MODEL, c.EVICTED_BLOCKS, "Blocks a second that a replica removed from a tier.", "tier"
)
TARGET_MODEL_RESIDENT_BLOCKS = _gauge(
    c.RESIDENT_BLOCKS,
    "sum",
    "Blocks that a tier of a replica holds, over its ranks, by its KV events.",
    "tier",
)
TARGET_MODEL_USAGE = _gauge(
    c.USAGE_RATIO,
    "max",
    "Fullest rank of a replica: the share of the tier that running requests hold.",
    "tier",
)
MODEL_USAGE = _over_replicas(TARGET_MODEL_USAGE, "Fullest replica of a model.", "tier")
TARGET_MODEL_WAITING = _gauge(c.WAITING_REQUESTS, "sum", "Requests waiting at a replica, over its ranks.")
MODEL_WAITING = _over_replicas(TARGET_MODEL_WAITING, "Requests waiting for a model, over its replicas.")
TARGET_MODEL_RUNNING = _gauge(c.RUNNING_REQUESTS, "sum", "Requests running at a replica, over its ranks.")
MODEL_RUNNING = _over_replicas(TARGET_MODEL_RUNNING, "Requests running for a model, over its replicas.")
TARGET_MODEL_CAPACITY = _gauge(
    c.CAPACITY_TOKENS, "sum", "Tokens that a tier of a replica can hold, over its ranks.", "tier"
)

# Hits that routers predicted, and hits that engines reported to them.
MODEL_ROUTER_PREDICTED_HIT_RATIO = _rule(
    MODEL,
    "kvcache_router_predicted_hit",
    "ratio_rate5m",
    ratio(
        _rated(MODEL, c.ROUTER_PREDICTED_HIT, "index", part="sum"),
        _rated(MODEL, c.ROUTER_PREDICTED_HIT, "index", part="count"),
    ),
    "Mean share of a prompt that the routers' index expected in the chosen worker's cache, by requests.",
)
MODEL_ROUTER_DELIVERED_HIT_RATIO = _ratio(
    MODEL,
    "kvcache_router_delivered_hit",
    _rated(MODEL, c.ROUTER_CACHED_TOKENS),
    _rated(MODEL, c.ROUTER_INPUT_TOKENS),
    "Share of prompt tokens that engines told the routers they had served from their caches.",
)
MODEL_ROUTER_REQUESTS_RATE = _rate(
    MODEL, c.ROUTER_REQUESTS, "Requests a second that routers sent to a worker.", "worker"
)

# What a miss costs.
MODEL_PREFILL_SECONDS_RATE = _rate(MODEL, c.ENGINE_PREFILL_SECONDS, "Seconds of prefill a second of a model.")
MODEL_PREFILL_SECONDS_PER_1K = _rule(
    MODEL,
    c.PREFILL_SECONDS_PER_1K.name,
    "rate5m",
    "1000 * "
    + ratio(
        MODEL_PREFILL_SECONDS_RATE.record,
        f"({MODEL_MEASURED_PROMPT_TOKENS_RATE.record} - {MODEL_CACHED_PROMPT_TOKENS_RATE.record})",
    ),
    "Seconds of prefill for 1,000 prompt tokens that the cache did not hold.",
)
MODEL_PREFILL_SECONDS_SAVED_RATE = _rule(
    MODEL,
    "kvcache_prefill_seconds_saved",
    "rate5m",
    f"{MODEL_CACHED_PROMPT_TOKENS_RATE.record} * {MODEL_PREFILL_SECONDS_PER_1K.record} / 1000",
    "Seconds of prefill a second that the cache spared a model's replicas: its cached tokens at the measured "
    "time of a computed one. Times the GPUs of a replica these are GPU-seconds.",
)

RULES: tuple[RecordingRule, ...] = tuple(_ALL)
