"""The part of the summary that is the same for each model and for the fleet."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Upper edges of the buckets that hold the quantiles; null beyond the last edge."""

    p50_at_most_seconds: float | None
    p95_at_most_seconds: float | None
    p99_at_most_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The distribution of the time to first token in a window."""

    count: int
    edges_seconds: list[float]
    """Upper bounds of the buckets, in rising order."""
    counts: list[int]
    """Observations in each bucket, not cumulative; the last one is beyond the last edge."""
    estimates: Estimates


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWindow:
    """Values from the engines' own counters, as on /metrics; ratios are quotients of sums."""

    seconds: float | None
    """Real length of the longest of the targets' windows; null until a target gave its second page."""
    token_hit_ratio: float | None
    request_hit_ratio: float | None
    gap: float | None
    """Token-weighted minus request-weighted hit rate."""
    prompt_tokens: float
    """Denominator of token_hit_ratio."""
    preemptions_per_second: float | None
    evicted_tokens_per_second: float | None
    prefill_seconds_per_1k_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The scraped targets of one model or of the fleet, taken together."""

    targets: int
    targets_up: int
    targets_cold: int
    hit_basis: list[str]
    suspect: list[str]
    """Why the ratios may be wrong: `lookup_basis`, or the reasons of anomalies in the last hour."""
    request_hit_threshold_tokens: float | None
    """A request that computes at most this many tokens counts as a hit; the largest value of all targets."""
    usage_ratio: float | None
    """Usage of the fullest cache."""
    running_requests: float | None
    waiting_requests: float | None
    windows: dict[str, EngineWindow]
    ttft: dict[str, dict[str, Latency]]
    """By window and phase (`cold`, `warm`), as the engines measure it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWindow:
    """Values from request records, as on /metrics."""

    token_hit_ratio: float | None
    request_hit_ratio: float | None
    gap: float | None
    requests: float
    """Requests whose cached tokens are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Costs by the configured price table, in US dollars; null if no request of the window has a price."""

    cost_usd: float | None
    cost_without_cache_usd: float | None
    """Cost of the same requests without cache reads and writes."""
    savings_usd: float | None
    """Negative if writes were paid for and not read back."""
    savings_ratio: float | None
    """Savings divided by the cost without a cache."""
    priced_requests: int
    unpriced_requests: int
    """Requests in none of the costs: their model is not in the table, or the log lacks what was billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The request records of one model or of the fleet, taken together."""

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
    """Values from the KV events of all engines that publish them; null and empty if none was received."""

    stored_blocks_per_second: dict[str, float]
    """By tier, like the next; a tier other than the device only if it has any count."""
    evicted_blocks_per_second: dict[str, float]
    rewarmed_blocks_per_second: float | None
    """Blocks stored on the device again after they had been evicted from it."""
    rewarmed_ratio: float | None
    """Share of the blocks stored on the device; null if none was."""
    lost_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The KV events of one model's engines or of the fleet, taken together."""

    sources: int
    sources_heard: int
    """Sources with at least one event since the exporter began to listen."""
    resident_blocks: dict[str, int]
    """By tier."""
    followed_ratio: float | None
    """The smallest share of block hashes followed; below 1, resident and re-warmed blocks are estimates."""
    windows: dict[str, EventWindow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One model or the fleet; parts without an engine, a log or a source of KV events are null."""

    model_name: str | None
    engines: Engines | None
    requests: Requests | None
    events: Events | None
