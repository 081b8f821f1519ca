"""The recorded series that alerts and boards read, by names that say level:metric:operations.

Levels: `target_model` keeps target, namespace and model_name (its ranks summed), `model` sums the replicas of
a model, `source_model` keeps the log and the provider. All keep the labels of the parameter `keep_labels`.
Numerators and denominators are recorded apart, so that a ratio over any longer window is
`avg_over_time(numerator) / avg_over_time(denominator)`. To add one, write it here; `RULES` collects them.
"""

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
_ALL: list[RecordingRule] = []


def _rule(level: str, metric: c.Metric | str, operations: str, expr: str, about: str) -> RecordingRule:
    name = metric if isinstance(metric, str) else metric.name.removesuffix("_total")
    rule = RecordingRule(f"{level}:{name}:{operations}", expr, about)
    _ALL.append(rule)
    return rule


def _rate(level: tuple[str, ...], metric: c.Metric, *matchers: str, part: str = "") -> str:
    return total(level, f"rate({series(metric, *matchers, part=part)}[5m])")


# Tokens, by replica and by model.
TARGET_MODEL_PROMPT_TOKENS_RATE = _rule(
    "target_model",
    c.PROMPT_TOKENS,
    "rate5m",
    _rate(TARGET_MODEL, c.PROMPT_TOKENS),
    "Prompt tokens a second of a replica.",
)
TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE = _rule(
    "target_model",
    c.CACHED_PROMPT_TOKENS,
    "rate5m",
    _rate(TARGET_MODEL, c.CACHED_PROMPT_TOKENS),
    "Prompt tokens a second that a replica served from its cache, all tiers; absent where the engine only "
    "counts lookups.",
)
# Where the hit basis is lookup there are prompt tokens and no cached ones: they may not dilute the ratio.
_MEASURED = (
    f"{TARGET_MODEL_PROMPT_TOKENS_RATE.record} and on {labels(TARGET_MODEL)} "
    f"{TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE.record}"
)
TARGET_MODEL_TOKEN_HIT_RATIO = _rule(
    "target_model",
    "kvcache_token_hit",
    "ratio_rate5m",
    share(TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE.record, TARGET_MODEL_PROMPT_TOKENS_RATE.record),
    "Token-weighted hit rate of a replica; no sample without traffic, nor where an engine counts more cached "
    "than prompt tokens.",
)
MODEL_PROMPT_TOKENS_RATE = _rule(
    "model",
    c.PROMPT_TOKENS,
    "rate5m",
    total(MODEL, TARGET_MODEL_PROMPT_TOKENS_RATE.record),
    "Prompt tokens a second of a model.",
)
MODEL_MEASURED_PROMPT_TOKENS_RATE = _rule(
    "model",
    "kvcache_measured_prompt_tokens",
    "rate5m",
    total(MODEL, _MEASURED),
    "Prompt tokens a second of those replicas of a model that count cached tokens.",
)
MODEL_CACHED_PROMPT_TOKENS_RATE = _rule(
    "model",
    c.CACHED_PROMPT_TOKENS,
    "rate5m",
    total(MODEL, TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE.record),
    "Prompt tokens a second that a model's replicas served from their caches.",
)
MODEL_TOKEN_HIT_RATIO = _rule(
    "model",
    "kvcache_token_hit",
    "ratio_rate5m",
    share(MODEL_CACHED_PROMPT_TOKENS_RATE.record, MODEL_MEASURED_PROMPT_TOKENS_RATE.record),
    "Token-weighted hit rate of a model over all its replicas.",
)

# Requests as the engine's histograms tell them, exact for prompts longer than the threshold.
_RANK = (*TARGET_MODEL, "engine_rank")


def _at_threshold(histogram: c.Metric) -> str:
    """The rate of the one bucket whose edge is the engine's threshold; Prometheus 3 writes le="50.0"."""
    rate = f"rate({series(histogram, part='bucket')}[5m])"
    bucket = f'label_replace({rate}, "le", "$$1", "le", "(.+)[.]0")'
    edge = f'count_values by {labels(_RANK)} ("le", {series(c.REQUEST_HIT_THRESHOLD)})'
    return total(TARGET_MODEL, f"{bucket} and on {labels(_RANK, 'le')} {edge}")


TARGET_MODEL_SHORT_REQUESTS_RATE = _rule(
    "target_model",
    "kvcache_engine_short_requests",
    "rate5m",
    _at_threshold(c.ENGINE_PROMPT_TOKENS),
    "Requests a second whose prompt is too short to tell a hit from a miss.",
)
TARGET_MODEL_ENGINE_HITS_RATE = _rule(
    "target_model",
    "kvcache_engine_request_hits",
    "rate5m",
    f"{_at_threshold(c.ENGINE_COMPUTED_PROMPT_TOKENS)} - {TARGET_MODEL_SHORT_REQUESTS_RATE.record}",
    "Requests a second that skipped prefill, of those with a prompt longer than the threshold.",
)
TARGET_MODEL_ENGINE_REQUESTS_RATE = _rule(
    "target_model",
    "kvcache_engine_long_requests",
    "rate5m",
    f"{_rate(TARGET_MODEL, c.ENGINE_PROMPT_TOKENS, part='count')} - "
    f"{TARGET_MODEL_SHORT_REQUESTS_RATE.record}",
    "Requests a second with a prompt longer than the threshold.",
)
TARGET_MODEL_ENGINE_REQUEST_HIT_RATIO = _rule(
    "target_model",
    "kvcache_engine_request_hit",
    "ratio_rate5m",
    share(TARGET_MODEL_ENGINE_HITS_RATE.record, TARGET_MODEL_ENGINE_REQUESTS_RATE.record),
    "Request-weighted hit rate of a replica from the engine's own histograms.",
)
MODEL_ENGINE_HITS_RATE = _rule(
    "model",
    "kvcache_engine_request_hits",
    "rate5m",
    total(MODEL, TARGET_MODEL_ENGINE_HITS_RATE.record),
    "Requests a second of a model that skipped prefill, by the engines' histograms.",
)
MODEL_ENGINE_REQUESTS_RATE = _rule(
    "model",
    "kvcache_engine_long_requests",
    "rate5m",
    total(MODEL, TARGET_MODEL_ENGINE_REQUESTS_RATE.record),
    "Requests a second of a model with a prompt longer than the threshold.",
)
MODEL_ENGINE_REQUEST_HIT_RATIO = _rule(
    "model",
    "kvcache_engine_request_hit",
    "ratio_rate5m",
    share(MODEL_ENGINE_HITS_RATE.record, MODEL_ENGINE_REQUESTS_RATE.record),
    "Request-weighted hit rate of a model from the engines' own histograms.",
)

# Requests as the logs tell them.
SOURCE_MODEL_REQUESTS_RATE = _rule(
    "source_model",
    c.REQUESTS,
    "rate5m",
    total(SOURCE_MODEL, f"rate({series(c.REQUESTS)}[5m])", "outcome"),
    "Requests a second of a log by outcome.",
)
SOURCE_MODEL_KNOWN_REQUESTS_RATE = _rule(
    "source_model",
    "kvcache_known_requests",
    "rate5m",
    total(SOURCE_MODEL, f'{SOURCE_MODEL_REQUESTS_RATE.record}{{outcome!="unknown"}}'),
    "Requests a second of a log whose outcome is known.",
)
SOURCE_MODEL_REQUEST_HITS_RATE = _rule(
    "source_model",
    "kvcache_request_hits",
    "rate5m",
    total(SOURCE_MODEL, f'{SOURCE_MODEL_REQUESTS_RATE.record}{{outcome="full"}}')
    + f" or 0 * {SOURCE_MODEL_KNOWN_REQUESTS_RATE.record}",
    "Requests a second of a log that skipped prefill; 0 where none ever did.",
)
SOURCE_MODEL_REQUEST_HIT_RATIO = _rule(
    "source_model",
    "kvcache_request_hit",
    "ratio_rate5m",
    share(SOURCE_MODEL_REQUEST_HITS_RATE.record, SOURCE_MODEL_KNOWN_REQUESTS_RATE.record),
    "Request-weighted hit rate of a log: full hits by all requests of known outcome.",
)
SOURCE_MODEL_PROMPT_TOKENS_RATE = _rule(
    "source_model",
    c.REQUEST_PROMPT_TOKENS,
    "rate5m",
    _rate(SOURCE_MODEL, c.REQUEST_PROMPT_TOKENS),
    "Prompt tokens a second of a log.",
)
SOURCE_MODEL_CACHED_TOKENS_RATE = _rule(
    "source_model",
    c.REQUEST_CACHED_TOKENS,
    "rate5m",
    _rate(SOURCE_MODEL, c.REQUEST_CACHED_TOKENS),
    "Prompt tokens a second of a log that were served from the cache.",
)
SOURCE_MODEL_TOKEN_HIT_RATIO = _rule(
    "source_model",
    "kvcache_request_token_hit",
    "ratio_rate5m",
    share(SOURCE_MODEL_CACHED_TOKENS_RATE.record, SOURCE_MODEL_PROMPT_TOKENS_RATE.record),
    "Token-weighted hit rate of a log, over the same requests as its request-weighted one.",
)
MODEL_REQUESTS_RATE = _rule(
    "model",
    c.REQUESTS,
    "rate5m",
    total(LOG_MODEL, SOURCE_MODEL_REQUESTS_RATE.record, "outcome"),
    "Requests a second of a model by outcome, over all logs.",
)
MODEL_REQUEST_HIT_RATIO = _rule(
    "model",
    "kvcache_request_hit",
    "ratio_rate5m",
    share(
        total(LOG_MODEL, SOURCE_MODEL_REQUEST_HITS_RATE.record),
        total(LOG_MODEL, SOURCE_MODEL_KNOWN_REQUESTS_RATE.record),
    ),
    "Request-weighted hit rate of a model over all logs.",
)
MODEL_REQUEST_TOKEN_HIT_RATIO = _rule(
    "model",
    "kvcache_request_token_hit",
    "ratio_rate5m",
    share(
        total(LOG_MODEL, SOURCE_MODEL_CACHED_TOKENS_RATE.record),
        total(LOG_MODEL, SOURCE_MODEL_PROMPT_TOKENS_RATE.record),
    ),
    "Token-weighted hit rate of a model over all logs.",
)

# Time to first token. Never one mixture of hits and misses.
SOURCE_MODEL_TTFT_BUCKETS = _rule(
    "source_model",
    f"{c.REQUEST_TTFT.name}_bucket",
    "rate5m",
    total(SOURCE_MODEL, f"rate({series(c.REQUEST_TTFT, part='bucket')}[5m])", "outcome", "le"),
    "Buckets of time to first token of a log by outcome.",
)
MODEL_TTFT_BUCKETS = _rule(
    "model",
    f"{c.REQUEST_TTFT.name}_bucket",
    "rate5m",
    total(LOG_MODEL, SOURCE_MODEL_TTFT_BUCKETS.record, "outcome", "le"),
    "Buckets of time to first token of a model by outcome, over all logs.",
)
TARGET_MODEL_ENGINE_TTFT_BUCKETS = _rule(
    "target_model",
    f"{c.ENGINE_TTFT.name}_bucket",
    "rate5m",
    total(TARGET_MODEL, f"rate({series(c.ENGINE_TTFT, part='bucket')}[5m])", "phase", "le"),
    "Buckets of a replica's time to first token by phase, cold or warm.",
)
MODEL_ENGINE_TTFT_BUCKETS = _rule(
    "model",
    f"{c.ENGINE_TTFT.name}_bucket",
    "rate5m",
    total(MODEL, TARGET_MODEL_ENGINE_TTFT_BUCKETS.record, "phase", "le"),
    "Buckets of a model's time to first token by phase, cold or warm.",
)

# Pressure.
TARGET_MODEL_PREEMPTIONS_RATE = _rule(
    "target_model",
    c.PREEMPTIONS,
    "rate5m",
    rate_since_birth(TARGET_MODEL, c.PREEMPTIONS, WINDOW_SECONDS),
    "Preemptions or retractions a second of a replica.",
)
MODEL_PREEMPTIONS_RATE = _rule(
    "model",
    c.PREEMPTIONS,
    "rate5m",
    total(MODEL, TARGET_MODEL_PREEMPTIONS_RATE.record),
    "Preemptions or retractions a second of a model.",
)
TARGET_MODEL_FINISHED_REQUESTS_RATE = _rule(
    "target_model",
    c.ENGINE_REQUESTS,
    "rate5m",
    _rate(TARGET_MODEL, c.ENGINE_REQUESTS),
    "Requests a second that a replica finished.",
)
MODEL_FINISHED_REQUESTS_RATE = _rule(
    "model",
    c.ENGINE_REQUESTS,
    "rate5m",
    total(MODEL, TARGET_MODEL_FINISHED_REQUESTS_RATE.record),
    "Requests a second that a model finished.",
)
TARGET_MODEL_EVICTED_TOKENS_RATE = _rule(
    "target_model",
    c.EVICTED_TOKENS,
    "rate5m",
    rate_since_birth(TARGET_MODEL, c.EVICTED_TOKENS, WINDOW_SECONDS, "tier"),
    "Tokens a second that a replica dropped from a tier, demotions to a slower tier included.",
)
MODEL_EVICTED_TOKENS_RATE = _rule(
    "model",
    c.EVICTED_TOKENS,
    "rate5m",
    total(MODEL, TARGET_MODEL_EVICTED_TOKENS_RATE.record, "tier"),
    "Tokens a second that a model's replicas dropped from a tier.",
)
TARGET_MODEL_STORED_TOKENS_RATE = _rule(
    "target_model",
    c.STORED_TOKENS,
    "rate5m",
    rate_since_birth(TARGET_MODEL, c.STORED_TOKENS, WINDOW_SECONDS, "tier"),
    "Tokens a second that a replica copied into a tier from a faster one.",
)
TARGET_MODEL_REWARMED_BLOCKS_RATE = _rule(
    "target_model",
    c.REWARMED_BLOCKS,
    "rate5m",
    _rate(TARGET_MODEL, c.REWARMED_BLOCKS),
    "Blocks a second that a replica stored again after it had removed them.",
)
TARGET_MODEL_STORED_BLOCKS_RATE = _rule(
    "target_model",
    c.STORED_BLOCKS,
    "rate5m",
    total(TARGET_MODEL, f"rate({series(c.STORED_BLOCKS)}[5m])", "tier"),
    "Blocks a second that a replica stored in a tier.",
)
TARGET_MODEL_EVICTED_BLOCKS_RATE = _rule(
    "target_model",
    c.EVICTED_BLOCKS,
    "rate5m",
    total(TARGET_MODEL, f"rate({series(c.EVICTED_BLOCKS)}[5m])", "tier"),
    "Blocks a second that a replica removed from a tier.",
)
TARGET_MODEL_RESIDENT_BLOCKS = _rule(
    "target_model",
    c.RESIDENT_BLOCKS,
    "sum",
    total(TARGET_MODEL, series(c.RESIDENT_BLOCKS), "tier"),
    "Blocks that a tier of a replica holds, over its ranks, by its KV events.",
)
TARGET_MODEL_USAGE = _rule(
    "target_model",
    c.USAGE_RATIO,
    "max",
    total(TARGET_MODEL, series(c.USAGE_RATIO), "tier", operator="max"),
    "Fullest rank of a replica: the share of the tier that running requests hold.",
)
MODEL_USAGE = _rule(
    "model",
    c.USAGE_RATIO,
    "max",
    total(MODEL, TARGET_MODEL_USAGE.record, "tier", operator="max"),
    "Fullest replica of a model.",
)
TARGET_MODEL_WAITING = _rule(
    "target_model",
    c.WAITING_REQUESTS,
    "sum",
    total(TARGET_MODEL, series(c.WAITING_REQUESTS)),
    "Requests waiting at a replica, over its ranks.",
)
MODEL_WAITING = _rule(
    "model",
    c.WAITING_REQUESTS,
    "sum",
    total(MODEL, TARGET_MODEL_WAITING.record),
    "Requests waiting for a model, over its replicas.",
)
TARGET_MODEL_RUNNING = _rule(
    "target_model",
    c.RUNNING_REQUESTS,
    "sum",
    total(TARGET_MODEL, series(c.RUNNING_REQUESTS)),
    "Requests running at a replica, over its ranks.",
)
MODEL_RUNNING = _rule(
    "model",
    c.RUNNING_REQUESTS,
    "sum",
    total(MODEL, TARGET_MODEL_RUNNING.record),
    "Requests running for a model, over its replicas.",
)
TARGET_MODEL_CAPACITY = _rule(
    "target_model",
    c.CAPACITY_TOKENS,
    "sum",
    total(TARGET_MODEL, series(c.CAPACITY_TOKENS), "tier"),
    "Tokens that a tier of a replica can hold, over its ranks.",
)

# What routers expected and what was delivered to them.
MODEL_ROUTER_PREDICTED_HIT_RATIO = _rule(
    "model",
    "kvcache_router_predicted_hit",
    "ratio_rate5m",
    ratio(
        _rate((*MODEL, "index"), c.ROUTER_PREDICTED_HIT, part="sum"),
        _rate((*MODEL, "index"), c.ROUTER_PREDICTED_HIT, part="count"),
    ),
    "Mean share of a prompt that the routers' index expected in the chosen worker's cache, by requests.",
)
MODEL_ROUTER_DELIVERED_HIT_RATIO = _rule(
    "model",
    "kvcache_router_delivered_hit",
    "ratio_rate5m",
    share(_rate(MODEL, c.ROUTER_CACHED_TOKENS), _rate(MODEL, c.ROUTER_INPUT_TOKENS)),
    "Share of prompt tokens that engines told the routers they had served from their caches.",
)
MODEL_ROUTER_REQUESTS_RATE = _rule(
    "model",
    c.ROUTER_REQUESTS,
    "rate5m",
    _rate((*MODEL, "worker"), c.ROUTER_REQUESTS),
    "Requests a second that routers sent to a worker.",
)

# What a miss costs.
MODEL_PREFILL_SECONDS_RATE = _rule(
    "model",
    c.ENGINE_PREFILL_SECONDS,
    "rate5m",
    _rate(MODEL, c.ENGINE_PREFILL_SECONDS),
    "Seconds of prefill a second of a model.",
)
MODEL_PREFILL_SECONDS_PER_1K = _rule(
    "model",
    c.PREFILL_SECONDS_PER_1K,
    "rate5m",
    "1000 * "
    + ratio(
        MODEL_PREFILL_SECONDS_RATE.record,
        f"({MODEL_MEASURED_PROMPT_TOKENS_RATE.record} - {MODEL_CACHED_PROMPT_TOKENS_RATE.record})",
    ),
    "Seconds of prefill for 1,000 prompt tokens that the cache did not hold.",
)
MODEL_PREFILL_SECONDS_SAVED_RATE = _rule(
    "model",
    "kvcache_prefill_seconds_saved",
    "rate5m",
    f"{MODEL_CACHED_PROMPT_TOKENS_RATE.record} * {MODEL_PREFILL_SECONDS_PER_1K.record} / 1000",
    "Seconds of prefill a second that the cache spared a model's replicas: its cached tokens at the measured "
    "time of a computed one. Times the GPUs of a replica these are GPU-seconds.",
)

RULES: tuple[RecordingRule, ...] = tuple(_ALL)
