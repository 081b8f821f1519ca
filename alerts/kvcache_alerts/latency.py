"""Alerts on the cost of misses and cold starts: time to first token against an objective, and money."""

from kvcache_alerts import recording as r
from kvcache_alerts.model import Alert, Condition, Parameter, hold, severity
from kvcache_alerts.promql import MODEL, SOURCE_MODEL, TARGET_MODEL, labels, series, total
from kvcache_exporter import catalogue as c

_BUCKETS = r.SOURCE_MODEL_TTFT_BUCKETS.record
_REQUESTS = r.SOURCE_MODEL_REQUESTS_RATE.record


def _slow(outcome: str) -> str:
    """The p99 of one outcome if it exceeds the objective and there are enough such requests."""
    buckets = total(SOURCE_MODEL, f'{_BUCKETS}{{outcome="{outcome}"}}', "outcome", "le")
    return (
        f'(histogram_quantile(0.99, {buckets}) > $objective and {_REQUESTS}{{outcome="{outcome}"}} > $floor)'
    )


_ENOUGH_MISSES = f'{_REQUESTS}{{outcome="miss"}} > $floor'

MISS_TTFT_HIGH = Alert(
    name="KVCacheMissTTFTHigh",
    fires="The p99 time to first token of misses exceeds the objective; of partial hits if there are too "
    "few misses.",
    summary="Requests that miss the cache wait too long for their first token.",
    description="{{ $labels.model_name }} ({{ $labels.source }}): p99 time to first token of outcome "
    "{{ $labels.outcome }} is {{ $value | humanizeDuration }}, objective {objective} s. Look at the queue, "
    "then at how many tokens a miss computes.",
    board="kvcache-requests",
    conditions=(
        Condition(
            f"{_slow('miss')} or ({_slow('partial')} unless on {labels(SOURCE_MODEL)} {_ENOUGH_MISSES})"
        ),
    ),
    parameters=(
        Parameter("objective", "5", "Seconds after which people take a chat for broken."),
        Parameter("floor", "0.05", "15 requests in 5 minutes; below it a p99 is one request."),
        hold("10m", "A few long prompts in a row pass by themselves."),
        severity("warning", "Some users wait; the service answers."),
    ),
)


def _mean_buckets(edge: str, window: str) -> str:
    return total(SOURCE_MODEL, f'avg_over_time({_BUCKETS}{{le=~"{edge}"}}[{window}])')


def _burn(window: str, factor: str) -> str:
    fast, every = _mean_buckets("$objective_edge", window), _mean_buckets("[+]Inf", window)
    return f"1 - {fast} / ({every} > $floor) > ${factor} * (1 - $target)"


TTFT_BUDGET_BURN = Alert(
    name="KVCacheTTFTBudgetBurn",
    fires="Requests slower than the objective use up the error budget many times faster than allowed, "
    "over a long and a short window.",
    summary="Too many requests wait longer for their first token than the objective allows.",
    description="{{ $labels.model_name }} ({{ $labels.source }}): {{ $value | humanizePercentage }} of the "
    "requests waited longer than {objective} s for their first token; {target} of them should not. "
    "Compare full hits, partial hits and misses: only misses slow means the cache, all slow means the queue.",
    board="kvcache-requests",
    conditions=(
        Condition(
            f"{_burn('$critical_long', 'critical_burn')} and {_burn('$critical_short', 'critical_burn')}",
            prefix="critical_",
        ),
        Condition(f"{_burn('$long', 'burn')} and {_burn('$short', 'burn')}"),
    ),
    parameters=(
        Parameter("objective", "1", "Seconds; a chat feels immediate below it.", "edge"),
        Parameter("target", "0.95", "One slow request in twenty is tolerated.", "ratio"),
        Parameter("floor", "0.05", "180 requests an hour; below it one slow request is a burn."),
        Parameter("critical_burn", "14.4", "Uses 2 % of a month's budget in an hour."),
        Parameter("critical_long", "1h", "The long window proves that it is not a moment.", "duration"),
        Parameter(
            "critical_short", "5m", "The short window ends the alert soon after the fault.", "duration"
        ),
        hold("2m", "The windows have done the waiting.", "critical_"),
        severity("critical", "At this rate the month's budget is gone in two days.", "critical_"),
        Parameter("burn", "6", "Uses 5 % of a month's budget in six hours."),
        Parameter("long", "6h", "The long window proves that it is not a moment.", "duration"),
        Parameter("short", "30m", "The short window ends the alert soon after the fault.", "duration"),
        hold("15m", "The windows have done the waiting."),
        severity("warning", "Five days until the budget is gone."),
    ),
)

_ENGINE_BUCKETS = r.TARGET_MODEL_ENGINE_TTFT_BUCKETS.record
_COLD_BUCKETS = total(TARGET_MODEL, f'{_ENGINE_BUCKETS}{{phase="cold"}}', "le")
_COLD_P99 = f"histogram_quantile(0.99, {_COLD_BUCKETS})"
_COLD_RATE = total(TARGET_MODEL, f'{_ENGINE_BUCKETS}{{phase="cold", le="+Inf"}}')
_WARM_BUCKETS = total(MODEL, f'{r.MODEL_ENGINE_TTFT_BUCKETS.record}{{phase="warm"}}', "le")
_WARM_P99 = f"histogram_quantile(0.99, {_WARM_BUCKETS})"
_WARM_AT_ANY_TIME = total(("target",), f"max_over_time({series(c.WARM)}[$limit])", operator="max")
_WARM_BEFORE = total(("target",), f"{series(c.WARM)} offset $limit", operator="max")
# Not by age alone: a cache that was emptied is cold at any age, and loading a model takes its time.
_COLD_TOO_LONG = (
    f"{total(('target',), series(c.AGE), operator='max')} > $limit_seconds "
    f"and {_WARM_AT_ANY_TIME} == 0 and {_WARM_BEFORE} == 0 "
    f"and {total(('target',), r.TARGET_MODEL_PROMPT_TOKENS_RATE.record)} > $floor"
)
_COLD_TOO_SLOW = (
    f"{_COLD_P99} > $objective and {_COLD_P99} > on {labels(MODEL)} group_left () $factor * {_WARM_P99} "
    f"and {_COLD_RATE} > $cold_floor"
)

COLD_START_SLOW = Alert(
    name="KVCacheColdStartSlow",
    fires="A replica with traffic is still cold after a limit, or its p99 time to first token while cold "
    "exceeds the objective and is many times that of the model's warm replicas.",
    summary="A replica takes too long to warm its cache, or is very slow while it does.",
    description="{{ $labels.target }} {{ if $labels.model_name }}({{ $labels.model_name }}) answers with a "
    "p99 time to first token of {{ $value | humanizeDuration }} while cold, over {factor} times that of warm "
    "replicas.{{ else }}has been cold for {limit} and more; its engine started "
    "{{ $value | humanizeDuration }} ago.{{ end }} Send it less traffic, or traffic whose prefixes it has.",
    board="kvcache-cold-start",
    conditions=(Condition(f"({_COLD_TOO_LONG}) or ({_COLD_TOO_SLOW})"),),
    parameters=(
        Parameter("limit", "10m", "Recorded engines recover within a minute of traffic.", "duration"),
        Parameter("floor", "100", "Prompt tokens a second; an idle replica stays cold and harms nobody."),
        Parameter(
            "factor", "4", "Cold prompts are computed in full; beyond four times there is a queue too."
        ),
        Parameter("objective", "5", "Seconds; slower than warm but fast is no fault."),
        Parameter("cold_floor", "0.05", "15 requests in 5 minutes; the first request of a process is slow."),
        hold("0m", "The limit is the waiting time."),
        severity("warning", "It ends by itself once the cache is filled."),
    ),
)

_GROUP = ("source", "provider", "group")
_WRITTEN = total(_GROUP, f"increase({series(c.REQUEST_WRITTEN_TOKENS)}[$window])")
_READ = total(_GROUP, f"increase({series(c.REQUEST_CACHED_TOKENS)}[$window])")

WRITES_NOT_READ = Alert(
    name="KVCacheWritesNotRead",
    fires="Of the tokens a provider billed as cache writes, too few were read back, by provider and group.",
    summary="Cache writes are paid for and hardly read back.",
    description="{{ $labels.provider }}, group {{ $labels.group }} ({{ $labels.source }}): for each token "
    "written to the cache {{ $value | printf `%.3g` }} were read back. Writes cost more than plain "
    "tokens: stop marking prompts that do not come back, or keep prefixes stable.",
    board="kvcache-requests",
    conditions=(Condition(f"({_READ} or 0 * {_WRITTEN}) / ({_WRITTEN} > $floor) < $share"),),
    parameters=(
        Parameter(
            "share", "0.25", "A write costs 25 % more than a plain token; this read rate only just pays."
        ),
        Parameter("window", "6h", "Longer than the longest usual time to live of one hour.", "duration"),
        Parameter("floor", "100000", "Tokens written in the window; below it the money is small."),
        hold("1h", "New groups write first and read later."),
        severity("warning", "It costs money, not users."),
    ),
)

ALERTS = (MISS_TTFT_HIGH, TTFT_BUDGET_BURN, COLD_START_SLOW, WRITES_NOT_READ)
