"""Alerts on a cache that is too small for its load: preemptions, evictions, re-warming, usage."""

from kvcache_alerts import recording as r
from kvcache_alerts.model import Alert, Condition, Parameter, hold, severity
from kvcache_alerts.promql import TARGET_MODEL, labels, looked_up, total

_ON = labels(TARGET_MODEL)
_PREEMPTIONS = r.TARGET_MODEL_PREEMPTIONS_RATE.record
_FINISHED = r.TARGET_MODEL_FINISHED_REQUESTS_RATE.record
_WAITING = r.TARGET_MODEL_WAITING.record
_BASELINE = f"avg_over_time({_PREEMPTIONS}[$baseline] offset $offset)"
_USAGE = total(TARGET_MODEL, f'{r.TARGET_MODEL_USAGE.record}{{tier="device"}}', operator="max")
_EVICTED = total(TARGET_MODEL, f'{r.TARGET_MODEL_EVICTED_TOKENS_RATE.record}{{tier="device"}}')
_DEMOTED = total(TARGET_MODEL, f'{r.TARGET_MODEL_STORED_TOKENS_RATE.record}{{tier="host"}}')
_CAPACITY = total(TARGET_MODEL, f'{r.TARGET_MODEL_CAPACITY.record}{{tier="device"}}')
_STORED_BLOCKS = total(TARGET_MODEL, f'{r.TARGET_MODEL_STORED_BLOCKS_RATE.record}{{tier="device"}}')
_EVICTED_BLOCKS = total(TARGET_MODEL, f'{r.TARGET_MODEL_EVICTED_BLOCKS_RATE.record}{{tier="device"}}')
_RESIDENT_BLOCKS = total(TARGET_MODEL, f'{r.TARGET_MODEL_RESIDENT_BLOCKS.record}{{tier="device"}}')
_LOST_TOKENS_SHARE = f"60 * ({_EVICTED} - ({_DEMOTED} or 0 * {_EVICTED})) / {_CAPACITY}"
# vLLM's page does not count evicted tokens; its KV events count blocks.
_LOST_BLOCKS_SHARE = f"60 * {_EVICTED_BLOCKS} / ({_RESIDENT_BLOCKS} > 0)"
_REWARMED_SHARE = f"{r.TARGET_MODEL_REWARMED_BLOCKS_RATE.record} / ({_STORED_BLOCKS} > $floor)"
_REPLICA = ("target", "model_name")

PREEMPTION_SPIKE = Alert(
    name="KVCachePreemptionSpike",
    fires="Preemptions (SGLang: retractions) a second over 5 minutes exceed a floor and a multiple of the "
    "replica's own past, or twice the floor if there is none. Critical if many requests are preempted while "
    "others wait.",
    summary="A replica preempts running requests far more often than before.",
    description="{{ $labels.target }} ({{ $labels.model_name }}) preempts {{ $value | printf `%.3g` }} "
    "requests a second; the hour before it was "
    + looked_up(f"avg_over_time({_PREEMPTIONS}%s[{{baseline}}] offset {{offset}})", _REPLICA)
    + ". "
    + looked_up(f"{_WAITING}%s", _REPLICA)
    + " requests wait. Preempted requests are computed again: look at usage and the queue first.",
    board="kvcache-pressure",
    conditions=(
        Condition(
            f"({_PREEMPTIONS} > $floor and {_PREEMPTIONS} > $factor * {_BASELINE}) "
            f"or ({_PREEMPTIONS} > 2 * $floor unless {_BASELINE})"
        ),
        Condition(
            f"{_PREEMPTIONS} > $floor and {_PREEMPTIONS} > $critical_share * {_FINISHED} "
            f"and {_WAITING} > $critical_waiting",
            prefix="critical_",
        ),
    ),
    parameters=(
        Parameter(
            "floor", "0.05", "15 preemptions in 5 minutes; quiet phases of every recorded engine have none."
        ),
        Parameter("factor", "3", "A replica that lives with some preemptions is not news until they triple."),
        Parameter(
            "baseline",
            "1h",
            "Long enough to average over bursts, short enough to follow the day.",
            "duration",
        ),
        Parameter(
            "offset",
            "15m",
            "Longer than window and `for` together, so a spike cannot hide itself.",
            "duration",
        ),
        hold("2m", "Three or more evaluations; the rate itself already looks back 5 minutes."),
        severity("warning", "Requests get slow, none is lost."),
        Parameter("critical_share", "0.1", "One request in ten computed twice is felt by users.", "ratio"),
        Parameter("critical_waiting", "0", "Without a queue the engine still keeps up."),
        hold("10m", "A burst that the queue absorbs is over by then.", "critical_"),
        severity("critical", "The replica spends its time on work it throws away.", "critical_"),
    ),
)

EVICTION_PRESSURE = Alert(
    name="KVCacheEvictionPressure",
    fires="Tokens evicted from the device, less those kept in a host tier, exceed a share of the cache's "
    "capacity each minute while usage is high or requests wait; by KV events if the page has no counter.",
    summary="A replica turns over its prefix cache faster than prefixes can be reused.",
    description="{{ $labels.target }} ({{ $labels.model_name }}) evicts {{ $value | humanizePercentage }} of "
    "its cache each minute; usage "
    + looked_up(f'{r.TARGET_MODEL_USAGE.record}%s{{tier="device"}}', _REPLICA)
    + ", "
    + looked_up(f"{_WAITING}%s", _REPLICA)
    + " requests wait. Cached prefixes do not live long enough to be hit.",
    board="kvcache-pressure",
    conditions=(
        Condition(
            f"({_LOST_TOKENS_SHARE} or {_LOST_BLOCKS_SHARE}) > $share "
            f"and ({_USAGE} > $usage or {_WAITING} > $waiting)"
        ),
    ),
    parameters=(
        Parameter(
            "share", "0.5", "The whole cache is replaced in two minutes: less than most conversations' pause."
        ),
        Parameter("usage", "0.9", "Below it running requests leave room and eviction is only aging."),
        Parameter("waiting", "0", "A queue means that the cache, not the demand, is the limit."),
        hold("10m", "One large batch of new prompts evicts this much once and is no fault."),
        severity("warning", "A matter of capacity, to be solved in working hours."),
    ),
)

THRASHING = Alert(
    name="KVCacheThrashing",
    fires="A large share of the blocks stored on the device had been evicted before, while blocks are "
    "evicted; recomputation by preempted requests is not counted.",
    summary="A replica computes the same prefixes again and again because it evicts them.",
    description="{{ $value | humanizePercentage }} of the blocks that {{ $labels.target }} "
    "({{ $labels.model_name }}) stores are ones it evicted before. The working set of prefixes is larger "
    "than the cache: see how soon they come back.",
    board="kvcache-pressure",
    conditions=(
        Condition(
            f"{_REWARMED_SHARE} - ({_PREEMPTIONS} / ({_FINISHED} > 0) or 0 * {_STORED_BLOCKS}) > $share "
            f"and {_EVICTED_BLOCKS} > 0"
        ),
    ),
    parameters=(
        Parameter("share", "0.3", "A third of prefill for what was there already is worth more memory."),
        Parameter("floor", "1", "300 blocks in 5 minutes; below it a share says nothing."),
        hold("10m", "Shorter bursts come from one batch job."),
        severity("warning", "Wasted prefill, no outage."),
    ),
)

USAGE_HIGH = Alert(
    name="KVCacheUsageHigh",
    fires="Running requests hold nearly all of the device's cache while requests wait. Usage alone is not "
    "a problem: blocks cached for later count as free.",
    summary="A replica's KV cache is full with running requests while others wait.",
    description="{{ $labels.target }} ({{ $labels.model_name }}): usage {{ $value | printf `%.3g` }}, "
    + looked_up(f"{_WAITING}%s", _REPLICA)
    + " waiting: KV cache too small for this concurrency.",
    board="kvcache-pressure",
    conditions=(Condition(f"{_USAGE} > $usage and {_WAITING} > $waiting"),),
    parameters=(
        Parameter(
            "usage", "0.95", "Engines start to preempt and to hold back requests just above it.", "ratio"
        ),
        Parameter("waiting", "0", "A full cache without a queue is a well used one."),
        hold("10m", "Queues of a few minutes are what a queue is for."),
        severity("warning", "Add replicas or lower concurrency in working hours."),
    ),
)

ALERTS = (PREEMPTION_SPIKE, EVICTION_PRESSURE, THRASHING, USAGE_HIGH)
