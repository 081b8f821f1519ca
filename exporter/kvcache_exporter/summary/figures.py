"""The part of the summary's document that is the same for every model and for all together."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Upper edges of the buckets that hold the quantiles; null beyond the last edge."""

    p50_at_most_seconds: float | None
    p95_at_most_seconds: float | None
    p99_at_most_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How often a time to first token was seen in a window."""

    count: int
    edges_seconds: list[float]
    """Upper bounds of the buckets, in rising order."""
    counts: list[int]
    """Observations in each bucket, not cumulative; the last one is beyond the last edge."""
    estimates: Estimates


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWindow:
    """From engines' own counters, as on /metrics, added up and then divided."""

    seconds: float | None
    """Real length of the longest of the targets' windows; null until a target gave its second page."""
    token_hit_ratio: float | None
    request_hit_ratio: float | None
    gap: float | None
    """Token-weighted less request-weighted."""
    prompt_tokens: float
    """Those that token_hit_ratio is made of."""
    preemptions_per_second: float | None
    evicted_tokens_per_second: float | None
    prefill_seconds_per_1k_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """What the scraped targets of one model, or of all, say together."""

    targets: int
    targets_up: int
    targets_cold: int
    hit_basis: list[str]
    suspect: list[str]
    """Why the ratios may be wrong: `lookup_basis`, or anomalies of the last hour by reason."""
    request_hit_threshold_tokens: float | None
    """Most tokens that a request computed which counts as a hit here; the largest of all targets."""
    usage_ratio: float | None
    """Of the fullest cache."""
    running_requests: float | None
    waiting_requests: float | None
    windows: dict[str, EngineWindow]
    ttft: dict[str, dict[str, Latency]]
    """By window and phase (`cold`, `warm`), as the engines measure it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWindow:
    """From request records, as on /metrics."""

    token_hit_ratio: float | None
    request_hit_ratio: float | None
    gap: float | None
    requests: float
    """Those whose cached tokens are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """By the configured price table, in US dollars; null if no request of the window has a price."""

    cost_usd: float | None
    cost_without_cache_usd: float | None
    """Of the same requests, had nothing been read from or written to a cache."""
    savings_usd: float | None
    """Below zero where writes were paid for and not read back."""
    savings_ratio: float | None
    """Savings by the cost without a cache."""
    priced_requests: int
    unpriced_requests: int
    """In no cost: the table lacks their model, or the log does not say what was billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What the logs of one model, or of all, say together."""

    sources: list[str]
    windows: dict[str, RequestWindow]
    outcomes: dict[str, dict[str, int]]
    """Requests by window and outcome."""
    ttft: dict[str, dict[str, Latency]]
    """By window and outcome."""
    costs: dict[str, Cost] | None
    """By window; null without a price table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWindow:
    """From KV events, of all engines that publish them together; null and empty if none was heard."""

    stored_blocks_per_second: dict[str, float]
    """By tier, as is the next; a tier other than the device only if there was anything."""
    evicted_blocks_per_second: dict[str, float]
    rewarmed_blocks_per_second: float | None
    """Stored on the device after they had been evicted from it."""
    rewarmed_ratio: float | None
    """Of the blocks stored on the device; null if none was."""
    lost_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What the KV events of one model's engines, or of all, say together."""

    sources: int
    sources_heard: int
    """Those that published anything since the exporter began to listen."""
    resident_blocks: dict[str, int]
    """By tier."""
    followed_ratio: float | None
    """Smallest share of block hashes followed; below 1, resident and re-warmed blocks are estimates."""
    windows: dict[str, EventWindow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One model, or all; null where there is no engine, no log or no source of KV events of it."""

    model_name: str | None
    engines: Engines | None
    requests: Requests | None
    events: Events | None
