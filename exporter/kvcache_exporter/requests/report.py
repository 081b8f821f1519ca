"""A report on whole logs: exact totals and TTFT quantiles by outcome, hit rate over time, prompt groups."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvcache_exporter.catalogue import REQUEST_ERROR_REASONS
from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import OUTCOMES, Aggregate, RequestRecord, Skipped
from kvcache_exporter.requests.expiry import Expiry
from kvcache_exporter.requests.formats.base import Entry
from kvcache_exporter.requests.outcome import FullHit, classify
from kvcache_exporter.requests.prices import Prices
from kvcache_exporter.requests.tally import Money

OVERFLOW = "other"
SLICE_SECONDS = 300.0
_MOST_SLICES = 100_000
_MOST_UNPRICED = 1000
Billed = tuple[str, str, str]
"""Provider, model and tier."""


def quantile(ordered: Sequence[float], q: float) -> float:
    """The value at rank `q` of sorted values: an observed one, never interpolated."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


@dataclass(slots=True)
class Totals:
    """Counts of some requests; TTFTs are kept one by one, 8 bytes each."""

    requests: int = 0
    prompt_tokens: int = 0
    known_prompt_tokens: int = 0
    """Of requests whose cached tokens are known."""
    cached_tokens: int = 0
    written_tokens: int = 0
    aggregates: int = 0
    """Records that sum up many requests: their tokens are in the sums above, but they are not requests."""
    aggregate_prompt_tokens: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    ttft: dict[str, "array[float]"] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    money: Money = field(default_factory=Money)
    expired: int = 0
    """Misses of groups that had been idle for longer than the provider keeps a prefix."""

    def add(self, record: RequestRecord, outcome: str) -> None:
        self.requests += 1
        self.outcomes[outcome] += 1
        self.prompt_tokens += record.prompt_tokens or 0
        self.written_tokens += record.written_tokens or 0
        if outcome != "unknown":
            self.known_prompt_tokens += record.prompt_tokens or 0
            self.cached_tokens += record.cached_tokens or 0
        if record.ttft_seconds is not None:
            self.ttft[outcome].append(record.ttft_seconds)

    def add_aggregate(self, aggregate: Aggregate) -> None:
        self.aggregates += 1
        self.aggregate_prompt_tokens += aggregate.prompt_tokens
        self.prompt_tokens += aggregate.prompt_tokens
        self.known_prompt_tokens += aggregate.prompt_tokens
        self.cached_tokens += aggregate.cached_tokens
        self.written_tokens += aggregate.written_tokens or 0

    @property
    def uncached_tokens(self) -> int:
        return self.known_prompt_tokens - self.cached_tokens

    @property
    def token_hit_ratio(self) -> float | None:
        return self.cached_tokens / self.known_prompt_tokens if self.known_prompt_tokens else None

    @property
    def request_hit_ratio(self) -> float | None:
        known = self.requests - self.outcomes["unknown"]
        return self.outcomes["full"] / known if known else None

    def ttft_by_outcome(self) -> dict[str, list[float]]:
        """Sorted seconds, outcomes in the order of OUTCOMES, empty ones left out."""
        return {outcome: sorted(self.ttft[outcome]) for outcome in OUTCOMES if self.ttft.get(outcome)}


class Report:
    """Collects the entries of one or several files."""

    def __init__(
        self, full_hit: FullHit | None = None, *, prices: Prices | None = None, most_groups: int = 1000
    ) -> None:
        self.totals = Totals()
        self.groups: dict[str, Totals] = {}
        self.failures: Counter[str] = Counter()
        """Lines that were not records, by reason."""
        self.skipped: Counter[str] = Counter()
        """Entries that are not requests or were already counted, by reason."""
        self.errors: Counter[str] = Counter()
        """Failed requests by reason."""
        self.slices: dict[int, list[int]] = {}
        """Cached and prompt tokens by five-minute bucket (Unix time // 300)."""
        self.unpriced: Counter[Billed] = Counter()
        """Requests without a price."""
        self._expiries: dict[str, Expiry] = defaultdict(Expiry)
        self._full_hit = full_hit or FullHit()
        self.prices = prices
        self._most_groups = most_groups

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, RequestRecord):
                self._add_record(entry)
            elif isinstance(entry, RecordError):
                self.failures[entry.reason] += 1
            elif isinstance(entry, Aggregate):
                self.totals.add_aggregate(entry)
                name = self._group_name(entry.group)
                self.groups.setdefault(name, Totals()).add_aggregate(entry)
            elif isinstance(entry, Skipped):
                (self.errors if entry.reason in REQUEST_ERROR_REASONS else self.skipped)[entry.reason] += 1

    def _add_record(self, record: RequestRecord) -> None:
        outcome = classify(
            record.prompt_tokens, record.cached_tokens, record.granule, record.minimum_tokens, self._full_hit
        )
        price = self.prices.of(record.provider, record.model_name) if self.prices else None
        bill = price.bill(record) if price else None
        if self.prices and bill is None:
            self._note_unpriced((record.provider, record.model_name, record.tier))
        name = self._group_name(record.group)
        expired = self._expiries[name].expired(record) and outcome == "miss"
        for totals in (self.totals, self.groups.setdefault(name, Totals())):
            totals.add(record, outcome)
            totals.expired += expired
            if self.prices:
                totals.money.add((bill,))
        if record.timestamp is not None and outcome != "unknown" and len(self.slices) < _MOST_SLICES:
            slot = self.slices.setdefault(int(record.timestamp // SLICE_SECONDS), [0, 0])
            slot[0] += record.cached_tokens or 0
            slot[1] += record.prompt_tokens or 0

    def _note_unpriced(self, billed: Billed) -> None:
        known = billed in self.unpriced or len(self.unpriced) < _MOST_UNPRICED
        self.unpriced[billed if known else (OVERFLOW, OVERFLOW, "")] += 1

    def _group_name(self, name: str) -> str:
        return name if name in self.groups or len(self.groups) < self._most_groups else OVERFLOW

    def worst_groups(self) -> list[tuple[str, Totals]]:
        """Groups with the most uncached prompt tokens first: there a better hit rate saves most."""
        return sorted(self.groups.items(), key=lambda item: (-item[1].uncached_tokens, item[0]))

    def as_json(self) -> dict[str, object]:
        """The report's JSON document; costs are null without prices."""
        ttft = self.totals.ttft_by_outcome()
        every = sorted(value for values in ttft.values() for value in values)
        return {
            **_figures(self.totals),
            "outcomes": {o: n for o in OUTCOMES if (n := self.totals.outcomes[o])},
            "ttft": {outcome: _quantiles(values) for outcome, values in ttft.items()},
            "ttft_all": _quantiles(every),
            "aggregates": self.totals.aggregates,
            "aggregate_prompt_tokens": self.totals.aggregate_prompt_tokens,
            "errors": dict(self.errors),
            "skipped": dict(self.skipped),
            "parse_failures": dict(self.failures),
            "unpriced": [
                {"provider": provider, "model_name": model, "tier": tier, "requests": count}
                for (provider, model, tier), count in self.unpriced.most_common()
            ],
            "groups": [
                {
                    "group": name,
                    **_figures(totals),
                    "outcomes": {o: n for o in OUTCOMES if (n := totals.outcomes[o])},
                    "ttft": {o: _quantiles(values) for o, values in totals.ttft_by_outcome().items()},
                }
                for name, totals in self.worst_groups()
            ],
        }


def _figures(totals: Totals) -> dict[str, int | float | None]:
    return {
        "requests": totals.requests,
        "prompt_tokens": totals.prompt_tokens,
        "cached_tokens": totals.cached_tokens,
        "token_hit_ratio": totals.token_hit_ratio,
        "request_hit_ratio": totals.request_hit_ratio,
        "expired_misses": totals.expired,
        **_dollars(totals.money),
    }


def _dollars(money: Money) -> dict[str, int | float | None]:
    known = money.priced > 0
    return {
        "cost_usd": round(money.cost, 6) if known else None,
        "cost_without_cache_usd": round(money.without_cache, 6) if known else None,
        "savings_usd": round(money.savings, 6) if known else None,
        "unpriced_requests": money.unpriced,
    }


def _quantiles(ordered: Sequence[float]) -> dict[str, int | float | None]:
    found = {f"p{100 * q:.0f}": quantile(ordered, q) if ordered else None for q in (0.5, 0.95, 0.99)}
    return {"n": len(ordered), **found}
