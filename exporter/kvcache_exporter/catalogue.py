"""Every metric the exporter emits, defined once. Standard library only.

To add one, write its constant under the heading it belongs to and put it into `CATALOGUE`; `docs/metrics.md`
is generated from here. Names follow the Prometheus conventions: base units, counters end in `_total`, ratios
run from 0 to 1.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "info", "unknown"]
"""`unknown` (OpenMetrics) is for a running sum that may also fall."""
PREFIX = "kvcache_"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric family; `labels` fixes the order of label values in samples."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    area: str

    @property
    def family(self) -> str:
        """The name in OpenMetrics metadata, where counters and infos drop their suffix."""
        suffix = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        return self.name.removesuffix(suffix)


ENG = ("target", "namespace", "model_name", "engine_rank")
ROUTER = ("target", "namespace", "model_name", "worker")
REQ = ("source", "provider", "model_name", "group")
WINDOWS: dict[str, float] = {"1m": 60.0, "5m": 300.0, "1h": 3600.0}
"""Values of the label `window` and their length in seconds."""
TIERS = ("device", "host", "disk", "remote")
PHASES = ("cold", "warm")

SCRAPE_FAILURE_REASONS = (
    "timeout",
    "lookup",
    "connection",
    "tls",
    "http_status",
    "too_large",
    "truncated",
    "encoding",
    "not_metrics",
    "unknown_engine",
    "credentials",
    "redirect",
    "internal",
)
ANOMALY_REASONS = (
    "cached_exceeds_prompt",
    "hits_exceed_queries",
    "lookups_recounted",
    "preempted_lookups",
    "frozen",
    "went_back",
    "alternating",
    "counted_twice",
    "negative",
    "not_finite",
    "malformed",
    "duplicate",
)
PARSE_FAILURE_REASONS = (
    "not_utf8",
    "not_json",
    "too_long",
    "no_usage",
    "invalid",
    "cached_exceeds_prompt",
    "internal",
)
MISS_REASONS = (
    "model_changed",
    "system_changed",
    "tools_changed",
    "messages_changed",
    "previous_message_not_found",
    "unavailable",
    "other",
)
DISCOVERY_FAILURE_REASONS = (
    "timeout",
    "lookup",
    "unreadable",
    "invalid",
    "connection",
    "tls",
    "credentials",
    "forbidden",
    "throttled",
    "http_status",
    "truncated",
    "internal",
)
PROBE_REFUSALS = ("not_configured", "bad_request", "forbidden", "busy")
PROBE_RESULTS = ("up", "down", *PROBE_REFUSALS)
REQUEST_ERROR_REASONS = ("rate_limited", "client_error", "server_error", "aborted", "failed")
SKIP_REASONS = ("not_a_request", "response_cache", "duplicate", "late")
MISSED_OFFSET_REASONS = (
    "expired",  # the brokers had deleted them before they were read
    "gap",  # compacted away, or markers of transactions
    "uncounted",  # claimed by this exporter, whose state file was lost or set back
)
BROKER_ERROR_REASONS = ("authentication", "authorization", "connection", "fenced", "topic", "other")

SECONDS_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0,
    20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
TOKEN_BUCKETS = (
    1.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0,
    131072.0, 262144.0, 1048576.0,
)  # fmt: skip
RATIO_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)

_ALL: list[Metric] = []


def _metric(kind: Kind, area: str, name: str, labels: tuple[str, ...], text: str) -> Metric:
    metric = Metric(PREFIX + name, kind, labels, text, area)
    _ALL.append(metric)
    return metric


# From engine pages: the target itself.
_T = ("target",)
_TARGET = "Targets"
TARGET_UP = _metric(
    "gauge",
    _TARGET,
    "target_up",
    ("target", "engine"),
    "Whether the last scrape of the target gave a usable page (1) or not (0).",
)
TARGET_INFO = _metric("info", _TARGET, "target_info", (
    "target", "engine", "engine_version", "hit_basis", "prefix_caching", "block_size", "hash_algorithm",
    "cache_dtype", "eviction_policy",
), "Version and cache settings of the engine; hit_basis names the counters of the hit rate.")  # fmt: skip
TARGET_SCRAPE_DURATION = _metric(
    "gauge", _TARGET, "target_scrape_duration_seconds", _T, "Time the last scrape of the target took."
)
TARGET_LAST_SUCCESS = _metric(
    "gauge",
    _TARGET,
    "target_last_success_timestamp_seconds",
    _T,
    "Unix time of the last scrape of the target that gave a usable page.",
)
TARGET_SCRAPE_FAILURES = _metric(
    "counter",
    _TARGET,
    "target_scrape_failures_total",
    ("target", "reason"),
    "Scrapes of the target that gave no usable page.",
)
PROBE_FAILED = _metric(
    "gauge",
    _TARGET,
    "probe_failed",
    ("target", "reason"),
    "Reason why this probe got no usable page (always 1); only on /probe.",
)
TARGET_START = _metric(
    "gauge",
    _TARGET,
    "target_start_timestamp_seconds",
    _T,
    "Unix time at which the engine process started, if its page has it.",
)
TARGET_RESETS = _metric(
    "counter",
    _TARGET,
    "target_counter_resets_total",
    _T,
    "Scrapes in which at least one counter of the target decreased.",
)
TARGET_RESTARTS = _metric(
    "counter",
    _TARGET,
    "target_restarts_total",
    _T,
    "Restarts of the engine that were seen, by its start time, its counters or its process id.",
)
CACHE_RESETS = _metric(
    "counter",
    _TARGET,
    "cache_resets_total",
    _T,
    "Times the engine emptied its cache without a restart (vLLM reset_prefix_cache, SGLang flush_cache).",
)
AGE = _metric("gauge", _TARGET, "age_seconds", _T, "Time since the engine started, as far as that is known.")
WARM = _metric(
    "gauge",
    _TARGET,
    "warm",
    _T,
    "Whether the cache has recovered since the engine started or emptied it (1) or is still cold (0).",
)
WARMUP_DURATION = _metric(
    "gauge",
    _TARGET,
    "warmup_duration_seconds",
    _T,
    "Time the last cold start took until the cache had recovered or cold.max_duration had passed.",
)
TARGET_MISSING = _metric(
    "gauge",
    _TARGET,
    "target_missing_families",
    _T,
    "Families that the engine's table needs and the target's page does not have.",
)
TARGET_DEPRECATED = _metric(
    "gauge",
    _TARGET,
    "target_deprecated_families",
    _T,
    "Families on the target's page that newer versions of the engine have renamed.",
)
DATA_ANOMALIES = _metric(
    "counter",
    _TARGET,
    "data_anomalies_total",
    ("target", "reason"),
    "Wrong or misleading values on the target's page, by reason.",
)

# From engine pages: the cache.
_ENGINE = "Engines"
PREFIX_CACHING_ENABLED = _metric(
    "gauge",
    _ENGINE,
    "prefix_caching_enabled",
    ENG,
    "Whether the engine says that its prefix cache is on (1) or off (0).",
)
CAPACITY_TOKENS = _metric(
    "gauge", _ENGINE, "capacity_tokens", (*ENG, "tier"), "Tokens that the cache tier can hold."
)
USAGE_RATIO = _metric(
    "gauge",
    _ENGINE,
    "usage_ratio",
    (*ENG, "tier"),
    "Share of the cache tier that running requests hold, from 0 to 1; blocks cached for later count as free.",
)
USED_TOKENS = _metric(
    "gauge", _ENGINE, "used_tokens", (*ENG, "tier"), "Tokens of the cache tier that running requests hold."
)
PROMPT_TOKENS = _metric(
    "counter",
    _ENGINE,
    "prompt_tokens_total",
    ENG,
    "Prompt tokens of requests, once per request, those served from the cache included.",
)
CACHED_PROMPT_TOKENS = _metric(
    "counter",
    _ENGINE,
    "cached_prompt_tokens_total",
    (*ENG, "tier"),
    "Prompt tokens served from the cache, once per request.",
)
PREFIX_QUERY_TOKENS = _metric(
    "counter",
    _ENGINE,
    "prefix_query_tokens_total",
    ENG,
    "Tokens looked up in the prefix cache as the engine counts them, repeated lookups included.",
)
PREFIX_HIT_TOKENS = _metric(
    "counter",
    _ENGINE,
    "prefix_hit_tokens_total",
    (*ENG, "tier"),
    "Tokens found by lookups in the prefix cache as the engine counts them, repeated lookups included.",
)
EVICTED_TOKENS = _metric(
    "counter",
    _ENGINE,
    "evicted_tokens_total",
    (*ENG, "tier"),
    "Cached tokens dropped from the tier, moved to a slower tier or destroyed.",
)
STORED_TOKENS = _metric(
    "counter",
    _ENGINE,
    "stored_tokens_total",
    (*ENG, "tier"),
    "Tokens copied into the tier from a faster one.",
)
LOADED_TOKENS = _metric(
    "counter",
    _ENGINE,
    "loaded_tokens_total",
    (*ENG, "tier"),
    "Tokens loaded from the tier into a faster one.",
)
STORED_BYTES = _metric(
    "counter",
    _ENGINE,
    "stored_bytes_total",
    (*ENG, "tier"),
    "Bytes of cache copied into the tier, of engines that count bytes.",
)
LOADED_BYTES = _metric(
    "counter",
    _ENGINE,
    "loaded_bytes_total",
    (*ENG, "tier"),
    "Bytes of cache loaded from the tier, of engines that count bytes.",
)
USED_BYTES = _metric("gauge", _ENGINE, "used_bytes", (*ENG, "tier"), "Bytes that the cache tier holds.")
LOAD_FAILURES = _metric(
    "counter",
    _ENGINE,
    "load_failures_total",
    (*ENG, "tier"),
    "Loads from the tier that failed: the request fails or is computed again, as the engine is configured.",
)
UNDELIVERED_TOKENS = _metric(
    "counter",
    _ENGINE,
    "undelivered_tokens_total",
    (*ENG, "tier"),
    "Tokens that the tier held but that were computed because they did not arrive in time.",
)
PREEMPTIONS = _metric(
    "counter",
    _ENGINE,
    "preemptions_total",
    ENG,
    "Running requests put back into the queue to free cache (vLLM preemptions, SGLang retractions).",
)
RECOMPUTED_TOKENS = _metric(
    "counter",
    _ENGINE,
    "recomputed_tokens_total",
    ENG,
    "Prompt tokens computed again for requests that had been put back into the queue.",
)
RUNNING_REQUESTS = _metric("gauge", _ENGINE, "running_requests", ENG, "Requests being computed.")
WAITING_REQUESTS = _metric("gauge", _ENGINE, "waiting_requests", ENG, "Requests waiting to be scheduled.")
ENGINE_REQUESTS = _metric("counter", _ENGINE, "engine_requests_total", ENG, "Requests the engine finished.")
ENGINE_PREFILL_SECONDS = _metric(
    "counter",
    _ENGINE,
    "engine_prefill_seconds_total",
    ENG,
    "Time requests spent in prefill, summed over finished requests.",
)
ENGINE_TTFT = _metric(
    "histogram",
    _ENGINE,
    "engine_time_to_first_token_seconds",
    (*ENG, "phase"),
    "Time to first token as the engine measures it, queue included, hits and misses in one.",
)
ENGINE_PROMPT_TOKENS = _metric(
    "histogram", _ENGINE, "engine_prompt_tokens", ENG, "Prompt tokens of each finished request."
)
ENGINE_COMPUTED_PROMPT_TOKENS = _metric(
    "histogram",
    _ENGINE,
    "engine_computed_prompt_tokens",
    ENG,
    "Prompt tokens that each finished request had to compute because the cache did not hold them.",
)
REQUEST_HIT_THRESHOLD = _metric(
    "gauge",
    _ENGINE,
    "request_hit_threshold_tokens",
    ENG,
    "Most computed prompt tokens of a hit in request_hit_ratio; prompts of at most this length are left out.",
)
BLOCK_LIFETIME = _metric(
    "histogram",
    _ENGINE,
    "block_lifetime_seconds",
    ENG,
    "Time from a block's allocation until it is given to other tokens, of the blocks the engine samples.",
)
BLOCK_IDLE = _metric(
    "histogram",
    _ENGINE,
    "block_idle_before_eviction_seconds",
    ENG,
    "Time from a block's last use until it is given to other tokens, of the blocks the engine samples.",
)
BLOCK_REUSE = _metric(
    "histogram",
    _ENGINE,
    "block_reuse_interval_seconds",
    ENG,
    "Time between two uses of the same block, of the blocks the engine samples.",
)

# From the pages of routers.
_ROUTERS = "Routers"
ROUTER_REQUESTS = _metric(
    "counter",
    _ROUTERS,
    "router_requests_total",
    ROUTER,
    "Requests the router handled, by worker if it reports its choice.",
)
ROUTER_INPUT_TOKENS = _metric(
    "counter", _ROUTERS, "router_input_tokens_total", ROUTER, "Prompt tokens of requests the router handled."
)
ROUTER_CACHED_TOKENS = _metric(
    "counter",
    _ROUTERS,
    "router_cached_tokens_total",
    ROUTER,
    "Prompt tokens served from the engines' caches, as reported to the router.",
)
ROUTER_PREDICTED_HIT = _metric(
    "histogram",
    _ROUTERS,
    "router_predicted_hit_ratio",
    ("target", "namespace", "model_name", "index"),
    "Share of each prompt that the router's index expected in the chosen worker's cache, from 0 to 1.",
)
ROUTER_PREFIX_MATCHES = _metric(
    "counter",
    _ROUTERS,
    "router_prefix_matches_total",
    (*ROUTER, "result"),
    "Requests for which the router's own tree knew a worker with the prefix (hit) or not (miss).",
)
ROUTER_WORKERS = _metric("gauge", _ROUTERS, "router_workers", ROUTER, "Workers that the router can choose.")
ROUTER_WORKER_HEALTHY = _metric(
    "gauge",
    _ROUTERS,
    "router_worker_healthy",
    ROUTER,
    "Whether the router considers the worker healthy (1) or not (0).",
)
ROUTER_WORKER_REQUESTS = _metric(
    "gauge",
    _ROUTERS,
    "router_worker_requests",
    ROUTER,
    "Requests running at the worker, by the router's count.",
)

# From request records.
_REQUESTS = "Requests"
REQUESTS = _metric(
    "counter",
    _REQUESTS,
    "requests_total",
    (*REQ, "outcome"),
    "Finished requests by outcome: how much of the prompt the prefix cache served.",
)
REQUEST_PROMPT_TOKENS = _metric(
    "counter",
    _REQUESTS,
    "request_prompt_tokens_total",
    REQ,
    "Prompt tokens of requests whose cached tokens are known, those served from the cache included.",
)
REQUEST_CACHED_TOKENS = _metric(
    "counter", _REQUESTS, "request_cached_tokens_total", REQ, "Prompt tokens served from the cache."
)
REQUEST_OUTPUT_TOKENS = _metric("counter", _REQUESTS, "request_output_tokens_total", REQ, "Tokens generated.")
REQUEST_WRITTEN_TOKENS = _metric(
    "counter",
    _REQUESTS,
    "request_written_tokens_total",
    (*REQ, "ttl"),
    "Prompt tokens written to the provider's cache and billed as such, by the time they are kept.",
)
REQUEST_TTFT = _metric(
    "histogram",
    _REQUESTS,
    "request_time_to_first_token_seconds",
    (*REQ, "outcome"),
    "Time to first token by outcome of the prefix cache.",
)
REQUEST_DURATION = _metric(
    "histogram",
    _REQUESTS,
    "request_duration_seconds",
    (*REQ, "outcome"),
    "Time from request to last token by outcome of the prefix cache.",
)
REQUEST_COMPUTED_TOKENS = _metric(
    "histogram",
    _REQUESTS,
    "request_computed_tokens",
    REQ,
    "Prompt tokens of each request that the cache did not hold.",
)
REQUEST_CACHED_RATIO = _metric(
    "histogram",
    _REQUESTS,
    "request_cached_ratio",
    REQ,
    "Share of each request's prompt that was served from the cache, from 0 to 1.",
)
REQUEST_ERRORS = _metric(
    "counter",
    _REQUESTS,
    "request_errors_total",
    (*REQ, "reason"),
    "Requests that failed; they are in no other request metric.",
)
REQUEST_DIAGNOSED_MISSES = _metric(
    "counter",
    _REQUESTS,
    "request_diagnosed_misses_total",
    (*REQ, "reason"),
    "Requests for which the provider reports why their prefix was not fully read from the cache.",
)
REQUEST_DIAGNOSED_TOKENS = _metric(
    "counter",
    _REQUESTS,
    "request_diagnosed_missed_tokens_total",
    (*REQ, "reason"),
    "Prompt tokens that those requests would otherwise have read from the cache, by the provider's report.",
)
REQUEST_COST = _metric(
    "counter",
    _REQUESTS,
    "request_cost_usd_total",
    REQ,
    "Cost of requests by the configured price table, in US dollars, cache reads and writes included.",
)
REQUEST_COST_WITHOUT_CACHE = _metric(
    "counter",
    _REQUESTS,
    "request_cost_without_cache_usd_total",
    REQ,
    "Cost of the same requests without cache reads and writes, in US dollars.",
)
REQUEST_SAVINGS = _metric(
    "unknown",
    _REQUESTS,
    "request_savings_usd_total",
    REQ,
    "Savings by the cache in US dollars; falls while writes are paid for and not read. For a rate, subtract "
    "that of the cost from that of the cost without cache.",
)
REQUESTS_UNPRICED = _metric(
    "counter",
    _REQUESTS,
    "requests_unpriced_total",
    REQ,
    "Requests without a cost: their model is not in the price table, or the log lacks what was billed.",
)
REQUEST_REWARMS = _metric(
    "counter",
    _REQUESTS,
    "request_rewarms_total",
    REQ,
    "Times the cached prefix of a group fell below its established floor: an estimate of re-warming.",
)

# From the logs themselves.
_LOGS = "Logs"
_S = ("source",)
LOG_LINES = _metric(
    "counter",
    _LOGS,
    "log_lines_total",
    _S,
    "Complete lines read from the source; of an OTLP source, spans and log records received.",
)
LOG_ROTATIONS = _metric(
    "counter", _LOGS, "log_rotations_total", _S, "Times a file of the source was rotated or truncated."
)
LOG_PARSE_FAILURES = _metric(
    "counter",
    _LOGS,
    "log_parse_failures_total",
    ("source", "reason"),
    "Lines of the source without a usable record.",
)
LOG_SKIPPED = _metric(
    "counter",
    _LOGS,
    "log_skipped_total",
    ("source", "reason"),
    "Log entries that are not requests to a model, or that were already counted.",
)
LOG_LAG = _metric("gauge", _LOGS, "log_lag_bytes", _S, "Bytes in the source's files that are not read yet.")
LOG_LAG_MESSAGES = _metric(
    "gauge",
    _LOGS,
    "log_lag_messages",
    _S,
    "Kafka messages in the source's partitions that this exporter owns and has not counted yet.",
)
LOG_MISSED = _metric(
    "counter",
    _LOGS,
    "log_missed_offsets_total",
    ("source", "reason"),
    "Offsets of the source's Kafka topics without a message.",
)
LOG_BROKER_ERRORS = _metric(
    "counter",
    _LOGS,
    "log_broker_errors_total",
    ("source", "reason"),
    "Errors between the source and its Kafka brokers; the source keeps retrying.",
)
LOG_LAST_RECORD = _metric(
    "gauge",
    _LOGS,
    "log_last_record_timestamp_seconds",
    _S,
    "Unix time of the newest record of the source, by the record's own clock.",
)

# From spans and log records that are sent to the exporter, and from joining spans to logs.
_OTLP = "OTLP"
SIGNALS = ("traces", "logs")
OTLP_REFUSALS = ("media_type", "encoding", "too_large", "malformed", "slow", "busy", "state")
JOIN_RESULTS = ("joined", "usage_only", "span_only")
OTLP_RECEIVED = _metric(
    "counter",
    _OTLP,
    "otlp_received_total",
    ("source", "signal"),
    "Spans (traces) and log records (logs) received, including those that are not requests.",
)
OTLP_REFUSED = _metric(
    "counter",
    _OTLP,
    "otlp_refused_total",
    ("source", "reason"),
    "Exports that were refused as a whole; senders retry those refused as slow, busy or state.",
)
JOIN_REQUESTS = _metric(
    "counter",
    _OTLP,
    "join_requests_total",
    ("source", "result"),
    "Requests of a log that spans are joined to: with both halves, or counted with one of them alone.",
)
JOIN_EVICTIONS = _metric(
    "counter",
    _OTLP,
    "join_evictions_total",
    _S,
    "Requests counted with one half alone before their time, because too many waited.",
)
JOIN_WAITING = _metric(
    "gauge",
    _OTLP,
    "join_waiting",
    ("source", "side"),
    "Log records (usage) and spans (span) that wait for their other half; they are in no counter yet.",
)

# From the engines' own KV events.
_EVENTS = "KV events"
EVENT_KINDS = ("stored", "removed", "cleared", "unreadable")
EVENTS = _metric(
    "counter",
    _EVENTS,
    "events_total",
    ("target", "event"),
    "KV events received: blocks stored, blocks removed, all blocks cleared, and unreadable ones.",
)
EVENTS_LOST = _metric(
    "counter",
    _EVENTS,
    "events_lost_total",
    ("target",),
    "Batches of KV events that the engine sent and that were lost, even with replay.",
)
EVICTED_BLOCKS = _metric(
    "counter", _EVENTS, "evicted_blocks_total", (*ENG, "tier"), "Cached blocks removed from the tier."
)
STORED_BLOCKS = _metric(
    "counter", _EVENTS, "stored_blocks_total", (*ENG, "tier"), "Blocks stored in the tier's cache."
)
REWARMED_BLOCKS = _metric(
    "counter",
    _EVENTS,
    "rewarmed_blocks_total",
    ENG,
    "Blocks stored again after they had been removed from the tier.",
)
RESIDENT_BLOCKS = _metric(
    "gauge", _EVENTS, "resident_blocks", (*ENG, "tier"), "Blocks that the tier's cache holds, by its events."
)
REWARM_DELAY = _metric(
    "histogram",
    _EVENTS,
    "rewarm_delay_seconds",
    ENG,
    "Time from a block's removal until it was stored again.",
)
TRACKED_BLOCKS = _metric(
    "gauge",
    _EVENTS,
    "tracked_blocks_ratio",
    (*ENG, "blocks"),
    "Share of block hashes followed, from 0 to 1; below 1 what is resident or re-warmed is an estimate.",
)

# Derived over windows.
_WINDOWS = "Windows"
TOKEN_HIT_RATIO = _metric(
    "gauge",
    _WINDOWS,
    "token_hit_ratio",
    (*ENG, "source", "provider", "group", "window"),
    "Share of prompt tokens served from the cache in the window, from 0 to 1; no sample without traffic.",
)
REQUEST_HIT_RATIO = _metric(
    "gauge",
    _WINDOWS,
    "request_hit_ratio",
    (*ENG, "source", "provider", "group", "window"),
    "Share of requests that skipped prefill in the window, from 0 to 1; no sample without traffic.",
)
PREEMPTIONS_PER_SECOND = _metric(
    "gauge",
    _WINDOWS,
    "preemptions_per_second",
    (*ENG, "window"),
    "Preemptions or retractions per second in the window.",
)
EVICTED_TOKENS_PER_SECOND = _metric(
    "gauge",
    _WINDOWS,
    "evicted_tokens_per_second",
    (*ENG, "window"),
    "Tokens dropped from the device tier per second in the window.",
)
PREFILL_SECONDS_PER_1K = _metric(
    "gauge",
    _WINDOWS,
    "prefill_seconds_per_1k_tokens",
    (*ENG, "window"),
    "Seconds of prefill per 1,000 computed prompt tokens in the window: the cost of a miss.",
)

# The exporter about itself.
_EXPORTER = "Exporter"
BUILD_INFO = _metric(
    "info", _EXPORTER, "exporter_build_info", ("version", "python_version"), "The exporter's version."
)
CONFIG_RELOAD_OK = _metric(
    "gauge",
    _EXPORTER,
    "exporter_config_last_reload_successful",
    (),
    "Whether the last attempt to load the configuration succeeded (1) or not (0).",
)
CONFIG_RELOAD_TIME = _metric(
    "gauge",
    _EXPORTER,
    "exporter_config_last_reload_success_timestamp_seconds",
    (),
    "Unix time of the last attempt to load the configuration that succeeded.",
)
PRICE_TABLE_TIME = _metric(
    "gauge",
    _EXPORTER,
    "price_table_timestamp_seconds",
    (),
    "Unix time of the configured price table: as_of of the configuration, else the file's own time.",
)
PRICE_TABLE_MODELS = _metric(
    "gauge", _EXPORTER, "price_table_models", (), "Models that the configured price table has prices for."
)
DISCOVERY_FAILURES = _metric(
    "counter",
    _EXPORTER,
    "exporter_discovery_failures_total",
    ("reason",),
    "Look-ups of targets that failed, and objects that cannot be targets; the last known targets are kept.",
)
ACTIVE_SERIES = _metric(
    "gauge", _EXPORTER, "exporter_active_series", (), "Label sets on the page, a histogram counted once."
)
PROBES = _metric(
    "counter",
    _EXPORTER,
    "exporter_probes_total",
    ("result",),
    "Requests to /probe: targets that gave a usable page or not, and requests that were refused.",
)
STATE_LOST = _metric(
    "gauge",
    _EXPORTER,
    "exporter_state_lost_timestamp_seconds",
    (),
    "Unix time at which a damaged state file was set aside and counting started over; absent if never.",
)
DROPPED_SERIES = _metric(
    "counter",
    _EXPORTER,
    "exporter_dropped_series_total",
    ("metric",),
    "Label sets left out of the page by limits.series_per_metric, counted each time the page is built.",
)

CATALOGUE: tuple[Metric, ...] = tuple(_ALL)
