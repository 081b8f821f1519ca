"""The immutable values that the stages of the pipeline pass to each other."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvcache_exporter.catalogue import Metric

Outcome = Literal["full", "partial", "miss", "uncacheable", "unknown"]
Signal = Literal["traces", "logs"]
"""A kind of OpenTelemetry data; the catalogue's SIGNALS lists them."""
OUTCOMES: tuple[Outcome, ...] = ("full", "partial", "miss", "uncacheable", "unknown")


class Distribution(NamedTuple):
    """A histogram's state: `counts[i]` observations were at most `edges[i]`; the last count is the total."""

    edges: tuple[float, ...]
    """Upper bounds in rising order, +Inf left out."""
    counts: tuple[float, ...]
    """Cumulative, one longer than `edges`."""
    sum: float


class RawSeries(NamedTuple):
    """One time series as an engine's page names it."""

    name: str
    labels: tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value of a catalogue metric; `labels` are values in the order of `metric.labels`, "" = absent."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution


class RequestRecord(NamedTuple):
    """One finished request, in the same terms for every log format.

    Prompt tokens always include those read from and written to the cache. `None` means that the log does not
    say, which is never the same as zero.
    """

    prompt_tokens: int | None
    cached_tokens: int | None
    """Prompt tokens read from the cache."""
    written_tokens: int | None = None
    """Prompt tokens written to the cache and billed as such."""
    output_tokens: int | None = None
    ttft_seconds: float | None = None
    duration_seconds: float | None = None
    timestamp: float | None = None
    """Unix seconds at which the request started, or the nearest time in the log."""
    provider: str = ""
    model_name: str = ""
    group: str = ""
    status: str = "ok"
    """`ok`, or how the request ended in the log's words (`truncated`)."""
    request_id: str = ""
    written_by_ttl: tuple[tuple[str, int], ...] = ()
    """Pairs of a TTL (5m, 30m, 1h, 12h) and written tokens, if the log splits them."""
    granule: int = 1
    """Tokens that the engine or provider caches as a unit: a full hit may still compute that many."""
    minimum_tokens: int = 0
    """Prompts shorter than this are never cached."""
    diagnosis: tuple[str, int] | None = None
    """The provider's reason for a miss (a value of the catalogue's MISS_REASONS), and the tokens missed."""
    tier: str = ""
    """What the provider bills apart from its usual prices (`batch`, `fast+us`); see `formats.tiers`."""

    @property
    def uncached_tokens(self) -> int | None:
        """Prompt tokens neither read from nor written to the cache."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return self.prompt_tokens - self.cached_tokens - (self.written_tokens or 0)


class RequestColumns(NamedTuple):
    """Requests of one provider, model and group in the order of their log, one column per field.

    The same content as RequestRecords without an object for each; all columns have the same length.
    """

    provider: str
    model_name: str
    group: str
    granule: int
    minimum_tokens: int
    prompt_tokens: Sequence[int | None]
    cached_tokens: Sequence[int | None]
    written_tokens: Sequence[int | None]
    output_tokens: Sequence[int | None]
    ttft_seconds: Sequence[float | None]
    duration_seconds: Sequence[float | None]
    written_by_ttl: Sequence[tuple[tuple[str, int], ...]]
    diagnosis: Sequence[tuple[str, int] | None]
    tier: Sequence[str]
    """Empty where all are billed as usual."""
    times: Collection[float | None]
    """Timestamps in Unix seconds, unordered; equal ones may occur only once."""


CUSTOM_PATHS = (
    "prompt_tokens", "cached_tokens", "written_tokens", "output_tokens", "ttft_seconds", "ttft_ms",
    "duration_seconds", "duration_ms", "timestamp", "model_name", "provider", "group", "status", "request_id",
    "service_tier",
)  # fmt: skip
"""Fields of `format: custom` whose value is a dotted path into the log entry."""
CUSTOM_LITERALS = ("prompt_includes_cached", "granule", "minimum_tokens")
"""Fields of `format: custom` whose value is taken literally: true or false, and two numbers of tokens."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A well-formed log entry that is not a finished request: counted by reason, kept out of all rates."""

    reason: str
    """A value of the catalogue's REQUEST_ERROR_REASONS for failed requests, else of its SKIP_REASONS."""
    status: str = ""
    provider: str = ""
    model_name: str = ""
    group: str = ""
    timestamp: float | None = None


class Aggregate(NamedTuple):
    """Tokens of many requests in one figure, as in providers' usage reports.

    It says nothing about single requests: it counts in token-weighted rates and has no outcome.
    """

    prompt_tokens: int
    """Tokens read from and written to the cache included."""
    cached_tokens: int
    written_tokens: int | None = None
    output_tokens: int | None = None
    requests: int | None = None
    """None where the report does not say."""
    timestamp: float | None = None
    """Unix seconds at which the bucket starts."""
    provider: str = ""
    model_name: str = ""
    group: str = ""
    written_by_ttl: tuple[tuple[str, int], ...] = ()

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens neither read from nor written to the cache."""
        return self.prompt_tokens - self.cached_tokens - (self.written_tokens or 0)
