"""Frozen values that the stages hand to each other."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvcache_exporter.catalogue import Metric

Outcome = Literal["full", "partial", "miss", "uncacheable", "unknown"]
Signal = Literal["traces", "logs"]
"""What OpenTelemetry sends, by the catalogue's SIGNALS."""
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
    """One finished request as a usage log tells it, the same for every format.

    Prompt tokens always include what was read from and written to the cache. `None` means the log does not
    say: never the same as zero.
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
    """Unix seconds at which the request started, as far as the log says."""
    provider: str = ""
    model_name: str = ""
    group: str = ""
    status: str = "ok"
    """`ok`, or what the log calls the way it ended (`truncated`)."""
    request_id: str = ""
    written_by_ttl: tuple[tuple[str, int], ...] = ()
    """Pairs of a TTL label value (5m, 30m, 1h, 12h) and written tokens, where the log splits them."""
    granule: int = 1
    """Tokens the engine or provider caches at a time: a full hit still computes up to that many."""
    minimum_tokens: int = 0
    """Prompts shorter than this are never cached."""
    diagnosis: tuple[str, int] | None = None
    """Why the provider says the cache was missed, a value of the catalogue's MISS_REASONS, and the tokens."""

    @property
    def uncached_tokens(self) -> int | None:
        """Prompt tokens neither read from nor written to the cache."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return self.prompt_tokens - self.cached_tokens - (self.written_tokens or 0)


class RequestColumns(NamedTuple):
    """Requests of one provider, model and group in the order of their log, one column a field.

    What a RequestRecord says, without an object for each; all columns are of one length.
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
    times: Collection[float | None]
    """Timestamps in Unix seconds, in no order; equal ones may stand there once."""


CUSTOM_PATHS = (
    "prompt_tokens", "cached_tokens", "written_tokens", "output_tokens", "ttft_seconds", "ttft_ms",
    "duration_seconds", "duration_ms", "timestamp", "model_name", "provider", "group", "status", "request_id",
)  # fmt: skip
"""Fields of `format: custom` whose value is a dotted path into the log entry."""
CUSTOM_LITERALS = ("prompt_includes_cached", "granule", "minimum_tokens")
"""Fields of `format: custom` whose value is meant as it stands: true or false, and two numbers of tokens."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A well-formed log entry that is no finished model request: counted by its reason, kept out of rates."""

    reason: str
    """A value of the catalogue's REQUEST_ERROR_REASONS for failed requests, else of its SKIP_REASONS."""
    status: str = ""
    provider: str = ""
    model_name: str = ""
    group: str = ""
    timestamp: float | None = None


class Aggregate(NamedTuple):
    """Tokens of many requests in one figure, as providers' usage reports give them.

    It says nothing of single requests: it counts in token-weighted rates and is never an outcome.
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
