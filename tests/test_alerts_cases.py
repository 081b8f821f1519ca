"""Each alert fires on what it means, with exact labels and text, and is silent on what looks alike."""

from pathlib import Path

import pytest

from alert_cases import ENGINE, LOG, REPLICA, SOURCE, Case, Fires, run_cases

_NAMESPACE = {"namespace": "llm", "model_name": "org/m"}
_QUEUE = {f"kvcache_waiting_requests{{{ENGINE}}}": "14x130", f"kvcache_running_requests{{{ENGINE}}}": "8x130"}


def _preempts(values: str, finished: str = "0+600x130") -> dict[str, str]:
    return {
        f"kvcache_preemptions_total{{{ENGINE}}}": values,
        f"kvcache_engine_requests_total{{{ENGINE}}}": finished,
        **_QUEUE,
    }


def _preemption_text(rate: str, before: str) -> str:
    return (
        f"pod-0 (org/m) preempts {rate} requests a second; the hour before it was {before}. 14 "
        "requests wait. "
        "Preempted requests are computed again: look at usage and the queue first."
    )


PREEMPTIONS = [
    Case(
        "KVCachePreemptionSpike",
        "a spike against a quiet hour is a warning",
        _preempts("0x90 60+60x30"),
        100,
        (Fires(REPLICA, _preemption_text("1", "0")),),
    ),
    Case(
        "KVCachePreemptionSpike",
        "many preempted requests and a queue are critical",
        _preempts("0x90 60+60x30", finished="0+60x130"),
        106,
        (
            Fires(REPLICA, _preemption_text("1", "0.00328")),
            Fires(REPLICA, _preemption_text("1", "0.00328"), severity="critical"),
        ),
    ),
    Case(
        "KVCachePreemptionSpike",
        "SGLang's retractions count from their first burst, when the counter appears on the page",
        _preempts("_x90 60+0x30"),
        94,
        (Fires(REPLICA, _preemption_text("0.2", "unknown")),),
    ),
    Case(
        "KVCachePreemptionSpike",
        "a fresh install has no past and twice the floor decides",
        _preempts("0+60x30"),
        9,
        (Fires(REPLICA, _preemption_text("1", "unknown")),),
    ),
    Case("KVCachePreemptionSpike", "a fresh install below twice the floor", _preempts("0+5x30"), 12),
    Case("KVCachePreemptionSpike", "a replica that always preempts this much", _preempts("0+30x130"), 120),
    Case("KVCachePreemptionSpike", "a counter reset", _preempts("5000+0x90 0x30"), 93),
    Case("KVCachePreemptionSpike", "one preemption every ten minutes", _preempts("0x90 1x9 2x9 3x9"), 115),
]

_EVICTS = {
    f'kvcache_evicted_tokens_total{{{ENGINE}, tier="device"}}': "0+6000x130",
    f'kvcache_capacity_tokens{{{ENGINE}, tier="device"}}': "8000x130",
    f'kvcache_usage_ratio{{{ENGINE}, tier="device"}}': "0.98x130",
    **_QUEUE,
}
_CALM = {
    f'kvcache_usage_ratio{{{ENGINE}, tier="device"}}': "0.5x130",
    f"kvcache_waiting_requests{{{ENGINE}}}": "0x130",
}
_EVICTION_FIRES = Fires(
    REPLICA,
    "pod-0 (org/m) evicts 75% of its cache each minute; usage 0.98, 14 requests wait. Cached prefixes do not "
    "live long enough to be hit.",
)
EVICTIONS = [
    Case(
        "KVCacheEvictionPressure",
        "three quarters of the cache a minute with a queue",
        _EVICTS,
        30,
        (_EVICTION_FIRES,),
    ),
    Case(
        "KVCacheEvictionPressure",
        "SGLang moves as many tokens to the host tier as it evicts",
        _EVICTS | {f'kvcache_stored_tokens_total{{{ENGINE}, tier="host"}}': "0+6000x130"},
        30,
    ),
    Case(
        "KVCacheEvictionPressure",
        "vLLM by its KV events: 150 of 200 blocks a minute",
        {
            f'kvcache_evicted_blocks_total{{{ENGINE}, tier="device"}}': "0+150x130",
            f'kvcache_resident_blocks{{{ENGINE}, tier="device"}}': "200x130",
            f'kvcache_usage_ratio{{{ENGINE}, tier="device"}}': "0.98x130",
            **_QUEUE,
        },
        30,
        (_EVICTION_FIRES,),
    ),
    Case("KVCacheEvictionPressure", "evictions without a queue on a half used cache", _EVICTS | _CALM, 30),
]

_REWARMS = {
    f"kvcache_rewarmed_blocks_total{{{ENGINE}}}": "0+120x60",
    f'kvcache_stored_blocks_total{{{ENGINE}, tier="device"}}': "0+240x60",
    f'kvcache_evicted_blocks_total{{{ENGINE}, tier="device"}}': "0+240x60",
}
THRASHING = [
    Case(
        "KVCacheThrashing",
        "half of what is stored was there before",
        _REWARMS,
        30,
        (
            Fires(
                REPLICA,
                "50% of the blocks that pod-0 (org/m) stores are ones it evicted before. The working set of "
                "prefixes is larger than the cache: see how soon they come back.",
            ),
        ),
    ),
    Case(
        "KVCacheThrashing",
        "every second request was preempted and stores its own blocks again",
        _REWARMS | _preempts("0+60x60", finished="0+120x60"),
        30,
    ),
    Case(
        "KVCacheThrashing",
        "a few blocks an hour",
        {series: values.replace("120", "1").replace("240", "2") for series, values in _REWARMS.items()},
        30,
    ),
]

USAGE = [
    Case(
        "KVCacheUsageHigh",
        "a full cache and a queue",
        {f'kvcache_usage_ratio{{{ENGINE}, tier="device"}}': "0.98x60", **_QUEUE},
        20,
        (
            Fires(
                REPLICA,
                "pod-0 (org/m): usage 0.98, 14 waiting: KV cache too small for this concurrency.",
            ),
        ),
    ),
    Case(
        "KVCacheUsageHigh",
        "a full cache without a queue",
        {f'kvcache_usage_ratio{{{ENGINE}, tier="device"}}': "0.98x60"},
        20,
    ),
    Case(
        "KVCacheUsageHigh",
        "a full host tier",
        {f'kvcache_usage_ratio{{{ENGINE}, tier="host"}}': "1x60", **_QUEUE},
        20,
    ),
]

_PROMPTS = f"kvcache_prompt_tokens_total{{{ENGINE}}}"
_CACHED = f'kvcache_cached_prompt_tokens_total{{{ENGINE}, tier="device"}}'
_DAY = 750  # two minutes each: 25 hours
_TOKENS_TEXT = (
    "org/m serves {} of its prompt tokens from the cache. Look for what changed: prompt template, routing, "
    "restarts, memory for the cache."
)
TOKEN_DROPS = [
    Case(
        "KVCacheTokenHitRatioDropped",
        "from 80 % to 10 %",
        {_PROMPTS: "0+24000x850", _CACHED: f"0+19200x{_DAY} {19200 * _DAY + 2400}+2400x80"},
        1550,
        (Fires(_NAMESPACE, _TOKENS_TEXT.format("10%")),),
        step=2,
    ),
    Case(
        "KVCacheTokenHitRatioDropped",
        "as low at the same hour yesterday",
        {
            _PROMPTS: "0+24000x1500",
            _CACHED: f"0+19200x500 {19200 * 500}+2400x50 {19200 * 500 + 2400 * 50}+19200x668 "
            f"{19200 * 1168 + 2400 * 50}+2400x60",
        },
        2520,
        step=2,
    ),
    Case(
        "KVCacheTokenHitRatioDropped",
        "less than six hours of history",
        {_PROMPTS: "0+24000x200", _CACHED: f"0+19200x100 {19200 * 100}+2400x80"},
        280,
        step=2,
    ),
    Case(
        "KVCacheTokenHitRatioDropped",
        "one request every ten minutes, a miss",
        {
            _PROMPTS: f"0+24000x{_DAY} " + " ".join(f"{24000 * _DAY + 90 * n}x4" for n in range(20)),
            _CACHED: f"0+19200x{_DAY} {19200 * _DAY}x100",
        },
        1580,
        step=2,
    ),
]

_REQUESTS_TEXT = (
    "{} of the requests to org/m skip prefill. Look for what changed: prompt template, routing, restarts, "
    "memory for the cache."
)


def _requests(full: str, miss: str) -> dict[str, str]:
    return {
        f'kvcache_requests_total{{{LOG}, outcome="full"}}': full,
        f'kvcache_requests_total{{{LOG}, outcome="miss"}}': miss,
        f'kvcache_requests_total{{{LOG}, outcome="unknown"}}': "0+500x1600",
    }


def _histograms(edge: str, hits: str, count: str) -> dict[str, str]:
    """Requests of which `hits` computed at most 50 tokens, none with so short a prompt."""
    return {
        f"kvcache_request_hit_threshold_tokens{{{ENGINE}}}": "50x1600",
        f'kvcache_engine_computed_prompt_tokens_bucket{{{ENGINE}, le="20"}}': "0x1600",
        f'kvcache_engine_computed_prompt_tokens_bucket{{{ENGINE}, le="{edge}"}}': hits,
        f'kvcache_engine_prompt_tokens_bucket{{{ENGINE}, le="{edge}"}}': "0x1600",
        f"kvcache_engine_prompt_tokens_count{{{ENGINE}}}": count,
    }


_HITS_STOP = f"0+80x{_DAY} {80 * _DAY}x100"
_MISSES_START = f"0+20x{_DAY} {20 * _DAY + 100}+100x100"
REQUEST_DROPS = [
    Case(
        "KVCacheRequestHitRatioDropped",
        "from 80 % to nothing, from a log",
        _requests(_HITS_STOP, _MISSES_START),
        1550,
        (Fires(SOURCE, _REQUESTS_TEXT.format("0%")),),
        step=2,
    ),
    *(
        Case(
            "KVCacheRequestHitRatioDropped",
            f"from the engine's histograms where there is no log, le={edge}",
            _histograms(edge, _HITS_STOP, "0+100x850"),
            1550,
            (Fires(_NAMESPACE, _REQUESTS_TEXT.format("0%")),),
            step=2,
        )
        for edge in ("50", "50.0")
    ),
    Case(
        "KVCacheRequestHitRatioDropped",
        "a drop from 80 % to 60 %",
        _requests(f"0+80x{_DAY} {80 * _DAY}+60x100", f"0+20x{_DAY} {20 * _DAY}+40x100"),
        1550,
        step=2,
    ),
]

_LOGGED_TOKENS = {
    f"kvcache_request_prompt_tokens_total{{{LOG}}}": "0+12000x100",
    f"kvcache_request_cached_tokens_total{{{LOG}}}": "0+9600x100",
}
_DIVERGE_TEXT = (
    "org/m: the token-weighted hit rate is 60% above the share of requests that skip prefill. A few long "
    "prompts make the first; watch the second."
)
DIVERGENCE = [
    Case(
        "KVCacheHitRatiosDiverge",
        "80 % of tokens, 20 % of requests",
        _LOGGED_TOKENS | _requests("0+6x100", "0+24x100"),
        60,
        (Fires(SOURCE, _DIVERGE_TEXT, "info"),),
    ),
    Case(
        "KVCacheHitRatiosDiverge",
        "the same from an engine alone",
        {_PROMPTS: "0+12000x100", _CACHED: "0+9600x100"} | _histograms("50.0", "0+6x100", "0+30x100"),
        60,
        (Fires(_NAMESPACE, _DIVERGE_TEXT, "info"),),
    ),
    Case(
        "KVCacheHitRatiosDiverge",
        "with one request in a minute",
        _LOGGED_TOKENS | _requests("0x100", "0+1x100"),
        60,
    ),
]

_OTHER = ENGINE.replace("pod-0", "pod-1")
_TWO = {
    _PROMPTS: "0+12000x100",
    _CACHED: "0+10800x100",
    f"kvcache_prompt_tokens_total{{{_OTHER}}}": "0+12000x100",
    f'kvcache_cached_prompt_tokens_total{{{_OTHER}, tier="device"}}': "0+1200x100",
}
IMBALANCE = [
    Case(
        "KVCacheReplicaImbalance",
        "90 % and 10 %",
        _TWO,
        60,
        (
            Fires(
                _NAMESPACE,
                "Best and worst replica of org/m are 80% apart in hit rate. Requests with the same prefix "
                "are "
                "probably not routed to the same replica.",
                "info",
            ),
        ),
    ),
    Case(
        "KVCacheReplicaImbalance",
        "the worse one is cold",
        _TWO | {'kvcache_warm{target="pod-1"}': "0x100"},
        60,
    ),
    Case(
        "KVCacheReplicaImbalance",
        "the worse one has no traffic",
        _TWO | {f"kvcache_prompt_tokens_total{{{_OTHER}}}": "0+90x100"},
        60,
    ),
    Case("KVCacheReplicaImbalance", "one replica", {_PROMPTS: "0+12000x100", _CACHED: "0+1200x100"}, 60),
]

CACHING_OFF = [
    Case(
        "KVCachePrefixCachingDisabled",
        "off with traffic",
        {f"kvcache_prefix_caching_enabled{{{ENGINE}}}": "0x60", _PROMPTS: "0+12000x60"},
        30,
        (
            Fires(
                REPLICA,
                "pod-0 (org/m) says that prefix caching is off (kvcache_prefix_caching_enabled is 0) and "
                "serves "
                "200 prompt tokens a second, all computed.",
            ),
        ),
    ),
    Case(
        "KVCachePrefixCachingDisabled",
        "off without traffic",
        {f"kvcache_prefix_caching_enabled{{{ENGINE}}}": "0x60", _PROMPTS: "0x60"},
        30,
    ),
    Case(
        "KVCachePrefixCachingDisabled",
        "on with traffic",
        {f"kvcache_prefix_caching_enabled{{{ENGINE}}}": "1x60", _PROMPTS: "0+12000x60"},
        30,
    ),
]


def _ttft(outcome: str, per_minute: int) -> dict[str, str]:
    """All requests of the outcome between 5 and 7.5 seconds."""
    bucket = f'kvcache_request_time_to_first_token_seconds_bucket{{{LOG}, outcome="{outcome}"'
    return {
        f'{bucket}, le="5.0"}}': "0x60",
        f'{bucket}, le="7.5"}}': f"0+{per_minute}x60",
        f'{bucket}, le="+Inf"}}': f"0+{per_minute}x60",
        f'kvcache_requests_total{{{LOG}, outcome="{outcome}"}}': f"0+{per_minute}x60",
    }


def _ttft_fires(outcome: str) -> Fires:
    text = (
        f"org/m (gateway): p99 time to first token of outcome {outcome} is 7.475s, objective 5 s. "
        "Look at the "
        "queue, then at how many tokens a miss computes."
    )
    return Fires({**SOURCE, "outcome": outcome}, text)


MISSES = [
    Case("KVCacheMissTTFTHigh", "slow misses", _ttft("miss", 60), 30, (_ttft_fires("miss"),)),
    Case(
        "KVCacheMissTTFTHigh",
        "slow partial hits where there are no misses",
        _ttft("partial", 60),
        30,
        (_ttft_fires("partial"),),
    ),
    Case("KVCacheMissTTFTHigh", "slow full hits are no cost of a miss", _ttft("full", 60), 30),
    Case("KVCacheMissTTFTHigh", "two slow misses a minute", _ttft("miss", 2), 30),
]


def _slow_share(edge: str, fast: str) -> dict[str, str]:
    bucket = f'kvcache_request_time_to_first_token_seconds_bucket{{{LOG}, outcome="miss"'
    return {f'{bucket}, le="{edge}"}}': fast, f'{bucket}, le="+Inf"}}': "0+60x100"}


_BURN_TEXT = (
    "org/m (gateway): 90% of the requests waited longer than 1 s for their first token; 0.95 of them should "
    "not. Compare full hits, partial hits and misses: only misses slow means the cache, all "
    "slow means the queue."
)
BURN = [
    *(
        Case(
            "KVCacheTTFTBudgetBurn",
            f"nine of ten requests are slow, le={edge}",
            _slow_share(edge, "0+6x100"),
            60,
            (Fires(SOURCE, _BURN_TEXT, "critical"), Fires(SOURCE, _BURN_TEXT)),
        )
        for edge in ("1", "1.0")
    ),
    Case("KVCacheTTFTBudgetBurn", "one of ten requests is slow", _slow_share("1.0", "0+54x100"), 60),
    Case(
        "KVCacheTTFTBudgetBurn",
        "a trickle of slow requests",
        {series: "0x9 1x9 2x9 3x9 4x9 5x9" if "Inf" in series else "0x60" for series in _slow_share("1", "")},
        55,
    ),
]

_AGES = {'kvcache_age_seconds{target="pod-0"}': "0+60x60", 'kvcache_warm{target="pod-0"}': "0x60"}


def _engine_ttft(target: str, phase: str, edge: str) -> dict[str, str]:
    bucket = f'kvcache_engine_time_to_first_token_seconds_bucket{{{ENGINE}, phase="{phase}"'.replace(
        "pod-0", target
    )
    edges = ("0.5", "1.0", "5.0", "10.0")
    inside = {f'{bucket}, le="{e}"}}': f"0+{60 * (float(e) >= float(edge))}x60" for e in edges}
    return inside | {f'{bucket}, le="+Inf"}}': "0+60x60"}


COLD = [
    Case(
        "KVCacheColdStartSlow",
        "still cold after fifteen minutes of traffic",
        _AGES | {_PROMPTS: "0+12000x60"},
        15,
        (
            Fires(
                {"target": "pod-0"},
                "pod-0 has been cold for 10m and more; its engine started 15m 0s ago. Send it less traffic, "
                "or traffic whose prefixes it has.",
            ),
        ),
    ),
    Case(
        "KVCacheColdStartSlow",
        "a cache that was emptied in a week-old engine is cold since five minutes",
        {
            'kvcache_age_seconds{target="pod-0"}': "604800+60x60",
            'kvcache_warm{target="pod-0"}': "1x25 0x30",
            _PROMPTS: "0+12000x60",
        },
        30,
    ),
    Case(
        "KVCacheColdStartSlow",
        "a replica whose model took eleven minutes to load has just begun to serve",
        {
            'kvcache_age_seconds{target="pod-0"}': "_x11 660+60x60",
            'kvcache_warm{target="pod-0"}': "_x11 0x60",
            _PROMPTS: "_x11 0+12000x60",
        },
        18,
    ),
    Case(
        "KVCacheColdStartSlow",
        "cold requests take ten times as long as warm ones",
        _engine_ttft("pod-0", "cold", "10.0") | _engine_ttft("pod-1", "warm", "1.0"),
        10,
        (
            Fires(
                REPLICA,
                "pod-0 (org/m) answers with a p99 time to first token of 9.95s while cold, over 4 times "
                "that of "
                "warm replicas. Send it less traffic, or traffic whose prefixes it has.",
            ),
        ),
    ),
    Case("KVCacheColdStartSlow", "an idle replica stays cold", _AGES | {_PROMPTS: "0x60"}, 30),
    Case(
        "KVCacheColdStartSlow",
        "cold requests slower, but within the objective",
        _engine_ttft("pod-0", "cold", "5.0") | _engine_ttft("pod-1", "warm", "0.5"),
        10,
    ),
]


def _writes(read: str, written: str = "0+2000x300") -> dict[str, str]:
    return {
        f'kvcache_request_written_tokens_total{{{LOG}, ttl="5m"}}': written,
        f"kvcache_request_cached_tokens_total{{{LOG}}}": read,
    }


WRITES = [
    Case(
        "KVCacheWritesNotRead",
        "one token read for ten written",
        _writes("0+200x300"),
        500,
        (
            Fires(
                {"source": "gateway", "provider": "openai", "group": "chat"},
                "openai, group chat (gateway): for each token written to the cache 0.1 were read back. "
                "Writes cost "
                "more than plain tokens: stop marking prompts that do not come back, or keep prefixes "
                "stable.",
            ),
        ),
        step=2,
    ),
    Case("KVCacheWritesNotRead", "every token read twice", _writes("0+4000x300"), 500, step=2),
    Case("KVCacheWritesNotRead", "little written", _writes("0x300", "0+10x300"), 500, step=2),
]

_PODS = {f'kvcache_target_up{{target="pod-{n}", engine="vllm"}}': "1x200" for n in range(3)}
_BUILD = 'kvcache_exporter_build_info{job="kvcache", instance="exporter:9409", version="0.1.0"}'
_EXPORTER = {_BUILD: "1x200"}


def _missing_text(count: str) -> str:
    return (
        f"{count} targets fewer than 1h ago, or none at all. Replicas that are not found raise no "
        "other alert: "
        "see whether discovery still lists them."
    )


_FAILING = {'kvcache_target_up{target="pod-0", engine="vllm"}': "0x60"}
TARGETS = [
    Case(
        "KVCacheTargetDown",
        "no usable page for five minutes",
        _FAILING
        | {
            'kvcache_target_scrape_failures_total{target="pod-0", reason="timeout"}': "0+4x60",
            'kvcache_target_scrape_failures_total{target="pod-0", reason="tls"}': "0x60",
        },
        10,
        (
            Fires(
                {"target": "pod-0", "engine": "vllm"},
                "pod-0 (vllm) gives no usable page (target_up is 0); reason of the last failures: timeout.",
                "critical",
            ),
        ),
    ),
    Case(
        "KVCacheTargetDown",
        "an engine that was never recognised",
        {'kvcache_target_up{target="pod-1"}': "0x60"},
        10,
        (
            Fires(
                {"target": "pod-1"},
                "pod-1 gives no usable page (target_up is 0); reason of the last failures: unknown.",
                "critical",
            ),
        ),
    ),
    Case("KVCacheTargetDown", "one failed scrape", dict.fromkeys(_FAILING, "1x9 0 1x50"), 11),
    Case("KVCacheTargetDown", "a target that left discovery", dict.fromkeys(_FAILING, "1x9 stale"), 30),
    Case(
        "KVCacheTargetsMissing",
        "one of three left",
        _EXPORTER | _PODS | {'kvcache_target_up{target="pod-2", engine="vllm"}': "1x90 stale"},
        120,
        (Fires({}, _missing_text("1")),),
    ),
    Case("KVCacheTargetsMissing", "none was ever found", _EXPORTER, 30, (Fires({}, _missing_text("1")),)),
    Case(
        "KVCacheTargetsMissing",
        "all left an hour ago, logs are still read",
        _EXPORTER
        | dict.fromkeys(_PODS, "1x40 stale")
        | {'kvcache_log_lines_total{source="gateway"}': "0+5x200"},
        150,
        (Fires({}, _missing_text("1")),),
    ),
    Case(
        "KVCacheTargetsMissing",
        "logs only",
        _EXPORTER | {'kvcache_log_lines_total{source="gateway"}': "0+5x60"},
        30,
    ),
    Case("KVCacheTargetsMissing", "more targets than before", _EXPORTER | _PODS, 120),
    Case("KVCacheTargetsMissing", "the exporter itself is down", dict.fromkeys(_PODS, "1x60 stale"), 90),
]

DRIFT = [
    Case(
        "KVCacheAdapterDrift",
        f"families are {what}",
        {f'kvcache_target_{what}_families{{target="pod-0"}}': "2x90"},
        80,
        (
            Fires(
                {"target": "pod-0"},
                "2 families that the exporter reads are missing or renamed on the page of pod-0; some "
                "numbers are "
                "absent or approximate.",
                "info",
            ),
        ),
    )
    for what in ("missing", "deprecated")
] + [
    Case(
        "KVCacheAdapterDrift",
        "all families are there",
        {'kvcache_target_missing_families{target="pod-0"}': "0x90"},
        80,
    ),
]

_ANOMALIES = 'kvcache_data_anomalies_total{target="pod-0", reason="lookups_recounted"}'
_LOOKUPS = 'kvcache_target_info{target="pod-0", engine="vllm", hit_basis="lookup"}'
_LOG_SERIES = {
    'kvcache_log_last_record_timestamp_seconds{source="gateway"}': "0+60x30 1800x30",
    'kvcache_log_lag_bytes{source="gateway"}': "0x60",
    'kvcache_log_lines_total{source="gateway"}': "0+60x30 1800x30",
    f'kvcache_requests_total{{{LOG}, outcome="miss"}}': "0+60x30 1800x30",
}
_STALLED = (
    Fires(
        {"source": "gateway"},
        "gateway: the newest record is 15m 0s old, though its file grows or engines finish "
        "requests. Outcomes, "
        "time to first token and cost stand still.",
    ),
)
_FAILED_LINES = {
    'kvcache_log_lines_total{source="gateway"}': "0+60x60",
    'kvcache_log_parse_failures_total{source="gateway", reason="no_usage"}': "0+15x60",
}
NUMBERS = [
    Case(
        "KVCacheDataAnomaly",
        "lookups are counted again and again",
        {_ANOMALIES: "0+1x60", _LOOKUPS: "1x60"},
        30,
        (
            Fires(
                {"target": "pod-0", "reason": "lookups_recounted"},
                "pod-0: 5 anomalies of reason lookups_recounted in 5m. Hit rates of this target may be "
                "missing "
                "or wrong for that time.",
            ),
        ),
    ),
    Case(
        "KVCacheDataAnomaly",
        "lookups are counted again where the hit rate is not made of them",
        {_ANOMALIES: "0+1x60", _LOOKUPS.replace("lookup", "prompt"): "1x60"},
        30,
    ),
    Case(
        "KVCacheDataAnomaly",
        "cached tokens stand still, two processes answer in turn",
        {
            _ANOMALIES.replace("lookups_recounted", "frozen"): "0+1x60",
            _ANOMALIES.replace("lookups_recounted", "alternating"): "0+2x60",
            _ANOMALIES.replace("lookups_recounted", "preempted_lookups"): "0x60",
            _LOOKUPS.replace("lookup", "prompt"): "1x60",
        },
        30,
        tuple(
            Fires(
                {"target": "pod-0", "reason": reason},
                f"pod-0: {count} anomalies of reason {reason} in 5m. Hit rates of this target may be "
                "missing or wrong for that time.",
            )
            for reason, count in (("frozen", 5), ("alternating", 10))
        ),
    ),
    Case("KVCacheDataAnomaly", "one odd page", {_ANOMALIES: "0x20 1x40", _LOOKUPS: "1x60"}, 32),
    Case(
        "KVCacheDataAnomaly", "a counter that stands above zero", {_ANOMALIES: "7x60", _LOOKUPS: "1x60"}, 30
    ),
    Case("KVCacheDataAnomaly", "the exporter restarted", {_ANOMALIES: "7x30 0x30", _LOOKUPS: "1x60"}, 35),
    Case(
        "KVCacheLogStalled",
        "engines finish requests to the log's model",
        _LOG_SERIES | {f"kvcache_engine_requests_total{{{ENGINE}}}": "0+60x60"},
        45,
        _STALLED,
    ),
    Case(
        "KVCacheLogStalled",
        "its file grows",
        _LOG_SERIES | {'kvcache_log_lag_bytes{source="gateway"}': "0x30 100+100x30"},
        45,
        _STALLED,
    ),
    Case(
        "KVCacheLogStalled",
        "its messages pile up",
        _LOG_SERIES | {'kvcache_log_lag_messages{source="gateway"}': "0x30 100+100x30"},
        45,
        _STALLED,
    ),
    Case("KVCacheLogStalled", "nobody sends requests", _LOG_SERIES, 45),
    Case(
        "KVCacheLogStalled",
        "engines finish requests to another model",
        _LOG_SERIES | {f"kvcache_engine_requests_total{{{ENGINE}}}".replace("org/m", "other"): "0+60x60"},
        45,
    ),
    Case(
        "KVCacheLogParseFailures",
        "a quarter of the lines",
        _FAILED_LINES,
        40,
        (
            Fires(
                {"source": "gateway"},
                "25% of the lines of gateway give no record, most for the reason no_usage. Its format has "
                "probably changed.",
            ),
        ),
    ),
    Case(
        "KVCacheLogParseFailures",
        "one line in a hundred",
        _FAILED_LINES | {'kvcache_log_lines_total{source="gateway"}': "0+1500x60"},
        40,
    ),
    Case(
        "KVCacheLogParseFailures",
        "one bad line every ten minutes is all there is",
        dict.fromkeys(_FAILED_LINES, "0x9 1x9 2x9 3x9 4x9 5x9"),
        50,
    ),
]

_LOST = 'kvcache_events_lost_total{target="pod-0"}'
_EVENTS = {'kvcache_events_total{target="pod-0", event="stored"}': "0+60x60"}


def _lost_fires(count: str) -> tuple[Fires, ...]:
    text = (
        f"pod-0: {count} batches of KV events were lost in 15m. Resident and re-warmed blocks are "
        "approximate "
        "until the cache is cleared."
    )
    return (Fires({"target": "pod-0"}, text, "info"),)


EVENTS = [
    Case("KVCacheEventsLost", "a batch a minute", _EVENTS | {_LOST: "0+1x60"}, 40, _lost_fires("15")),
    Case(
        "KVCacheEventsLost", "a counter born above zero", _EVENTS | {_LOST: "_x30 3x30"}, 38, _lost_fires("3")
    ),
    Case("KVCacheEventsLost", "batches lost long ago", _EVENTS | {_LOST: "3x60"}, 40),
    Case("KVCacheEventsLost", "a fresh install that lost some before", {_LOST: "_x30 3x30"}, 38),
]

_INSTANCE = {"job": "kvcache", "instance": "exporter:9409"}
_UP = 'up{job="kvcache", instance="exporter:9409"}'
_RELOAD = 'kvcache_exporter_config_last_reload_successful{job="kvcache", instance="exporter:9409"}'
_EXPORTER_LABELS = 'job="kvcache", instance="exporter:9409"'
_DROPPED = f'kvcache_exporter_dropped_series_total{{{_EXPORTER_LABELS}, metric="kvcache_requests_total"}}'
EXPORTER = [
    Case(
        "KVCacheExporterDown",
        "it was scraped and cannot be",
        {_UP: "1x20 0x40", _BUILD: "1x20 stale"},
        40,
        (
            Fires(
                _INSTANCE,
                "exporter:9409 cannot be scraped. (value 0) All other KV cache alerts are blind meanwhile.",
                "critical",
            ),
        ),
    ),
    Case(
        "KVCacheExporterDown",
        "there is none",
        {'up{job="node", instance="node:9100"}': "1x60"},
        40,
        (
            Fires(
                {},
                "No kvcache-exporter is scraped at all. (value 1) All other KV cache alerts are blind "
                "meanwhile.",
                "critical",
            ),
        ),
    ),
    Case(
        "KVCacheExporterDown",
        "another job is down",
        _EXPORTER | {_UP: "1x60", 'up{job="node", instance="node:9100"}': "0x60"},
        40,
    ),
    Case("KVCacheExporterDown", "it restarts", {_UP: "1x20 0x2 1x40", _BUILD: "1x20 stale _x1 1x40"}, 25),
    Case(
        "KVCacheExporterConfigReloadFailed",
        "a bad file",
        {_RELOAD: "1x10 0x30"},
        30,
        (
            Fires(
                _INSTANCE,
                "exporter:9409 refused its configuration (last reload successful: 0); its log says file, "
                "line and "
                "what was expected, as does `kvcache-exporter check`.",
            ),
        ),
    ),
    Case("KVCacheExporterConfigReloadFailed", "a good file", {_RELOAD: "1x40"}, 30),
    Case(
        "KVCacheExporterSeriesDropped",
        "too many label sets",
        {_DROPPED: "0+20x60"},
        50,
        (
            Fires(
                {**_INSTANCE, "metric": "kvcache_requests_total"},
                "exporter:9409 left out label sets of kvcache_requests_total 300 times in 15m. Raise "
                "limits.series_per_metric, or lower limits.groups_per_source or limits.models_per_source.",
            ),
        ),
    ),
    Case("KVCacheExporterSeriesDropped", "long ago", {_DROPPED: "500x60"}, 50),
]

CASES = [
    *PREEMPTIONS, *EVICTIONS, *THRASHING, *USAGE, *TOKEN_DROPS, *REQUEST_DROPS, *DIVERGENCE, *IMBALANCE,
    *CACHING_OFF, *MISSES, *BURN, *COLD, *WRITES, *TARGETS, *DRIFT, *NUMBERS, *EVENTS, *EXPORTER,
]  # fmt: skip


@pytest.mark.timeout(300)
def test_every_case_gives_exactly_the_alerts_it_names(tmp_path: Path) -> None:
    assert not run_cases(tmp_path, CASES)
