"""The document of `/api/v1/summary`. A change that could break a reader raises VERSION.

None (null) means no traffic or not reported, which is never the same as 0.
"""

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from kvcache_exporter.summary.figures import Scope

VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[T]):
    """The first rows of a list that may be long; `total` is its length."""

    total: int
    shown: list[T]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """The latest start of a replica."""

    target: str
    engine: str
    up: bool
    phase: str
    reason: str
    """How the start was detected."""
    age_seconds: float | None
    recovery_ratio: float | None
    """Of a cold replica: its hit rate as a share of the one at which it counts as warm."""
    warmup_seconds: float | None
    """Of a warm replica: how long it was cold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    cold: int
    """Replicas that are cold now."""
    starts: Listed[ColdStart]
    """Replicas that are cold or started within the last hour; cold ones first, then the youngest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One target over the last five minutes."""

    target: str
    engine: str
    models: list[str]
    phase: str
    hit_basis: str
    token_hit_ratio: float | None
    request_hit_ratio: float | None
    excess_tokens_per_second: float | None
    """Prompt tokens computed beyond those at the model's average hit rate."""
    preemptions_per_second: float | None
    evicted_tokens_per_second: float | None
    """By the engine's own counter; vLLM has none."""
    evicted_blocks_per_second: float | None
    """From the device tier, by KV events."""
    usage_ratio: float | None
    running_requests: float | None
    waiting_requests: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Names of replicas whose cache is too small for what they serve now, the worst first."""

    preempting: Listed[str]
    """More than 0.05 preemptions a second over five minutes."""
    full: Listed[str]
    """A cache more than 95 % held by running requests while others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One prompt group of a log over the last five minutes."""

    source: str
    provider: str
    model_name: str
    group: str
    requests: float
    token_hit_ratio: float | None
    request_hit_ratio: float | None
    uncached_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    reason: str
    last_hour: int
    total: int
    """Since the exporter started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownTarget:
    target: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """Targets with the same missing and deprecated families."""

    targets: int
    target: str
    """One of them."""
    missing: list[str]
    deprecated: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHealth:
    source: str
    lines: int
    lag_bytes: int
    lag_messages: int
    """Of a Kafka source."""
    parse_failures: dict[str, int]
    newest_record_age_seconds: float | None
    problems: list[str]
    """Why it cannot be read now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHealth:
    """One source of KV events; counts since the exporter began to listen."""

    target: str
    heard: bool
    lost_batches: int
    unreadable: int
    """Messages and events that could not be decoded."""
    followed_ratio: float
    problem: str | None
    """Why it cannot listen now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataQuality:
    """Reasons to doubt the other figures."""

    targets: int
    not_scraped: int
    """New targets, which are scraped within `scrape.interval`."""
    down: Listed[DownTarget]
    anomalies: list[Anomaly]
    incomplete_targets: int
    """Those with missing or deprecated families."""
    families: Listed[Families]
    logs: Listed[LogHealth]
    events: Listed[EventHealth]
    """Sources that cannot listen first, then those that lost most, then those without any event."""
    discovery_problems: Listed[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    version: str
    python_version: str
    shard_index: int
    shard_count: int
    started_at: float
    """Unix seconds; windows reach no further back."""
    config_reload_ok: bool
    config_loaded_at: float
    """Unix time of the last configuration that was loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The last hour as columns of equal length, null where there was no value.

    Ratios and rates are those of the window 1m, times to first token those of request records over 1m.
    """

    model_name: str | None
    at: list[float]
    """Unix seconds."""
    token_hit_ratio: list[float | None]
    request_hit_ratio: list[float | None]
    log_token_hit_ratio: list[float | None]
    log_request_hit_ratio: list[float | None]
    preemptions_per_second: list[float | None]
    evicted_tokens_per_second: list[float | None]
    evicted_blocks_per_second: list[float | None]
    """From the device tier, by KV events, like the next."""
    rewarmed_blocks_per_second: list[float | None]
    usage_ratio: list[float | None]
    running_requests: list[float | None]
    waiting_requests: list[float | None]
    full_ttft_p95_at_most_seconds: list[float | None]
    partial_ttft_p95_at_most_seconds: list[float | None]
    miss_ttft_p95_at_most_seconds: list[float | None]


COLUMNS = tuple(field.name for field in fields(History) if field.name not in ("model_name", "at"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    schema: int
    generated_at: float
    """Unix seconds."""
    exporter: Exporter
    fleet: Scope
    models: Listed[Scope]
    history: History
    """Of the fleet, or of the requested model."""
    cold: Cold
    pressure: Pressure
    replicas: Listed[Replica]
    """Replicas that are up, worst first: most excess_tokens_per_second, then most preemptions."""
    groups: Listed[Group]
    """Groups with traffic, worst first: most uncached tokens."""
    data_quality: DataQuality
