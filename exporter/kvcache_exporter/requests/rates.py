"""What one model costs, from its entry in LiteLLM's price table: by prompt length, tier and cache TTL."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kvcache_exporter.model import RequestColumns, RequestRecord

_WRITTEN = {
    "5m": "cache_creation_input_token_cost",
    "30m": "cache_creation_input_token_cost",
    "default": "cache_creation_input_token_cost",
    "1h": "cache_creation_input_token_cost_above_1hr",
    "12h": "cache_creation_input_token_cost_above_12hr",
}
_READ = "cache_read_input_token_cost"
_EXPLICIT_READ = "explicit_cache_read_input_token_cost"
_INPUT, _OUTPUT, _THINKING = (
    "input_cost_per_token",
    "output_cost_per_token",
    "output_cost_per_reasoning_token",
)
_LONG = re.compile(rf"{_INPUT}_above_(\d+)k_tokens")
_TIER = re.compile(rf"{_INPUT}_([a-z]+)")
_REGION = re.compile(r"regional_processing_uplift_multiplier_(\w+)")
_SUFFIXES = {"batch": "_batches"}
"""Suffixes of the fields of tiers, where they are not the tier's name."""
_STANDS_FOR = {"fast": "priority"}
"""OpenAI's name for a tier that the table lists under another name."""


class Rates(NamedTuple):
    """US dollars per token; None if the table has no such price."""

    input: float
    output: float
    read: float | None
    written: Mapping[str, float | None]
    """By TTL label value: default, 5m, 30m, 1h, 12h."""


class Schedule(NamedTuple):
    """Rates by prompt length: a long prompt may make every token of its request dearer."""

    usual: Rates
    long: tuple[tuple[int, Rates | None], ...] = ()
    """Pairs of a prompt length and the rates above it, longest first; None if the table has none."""

    def rates(self, prompt: int) -> Rates | None:
        for above, rates in self.long:
            if prompt > above:
                return rates
        return self.usual


class Bill(NamedTuple):
    """What one request cost, and what it would have cost without a cache, in US dollars."""

    cost: float
    without_cache: float


class Tariff(NamedTuple):
    """The prices of one tier."""

    schedule: Schedule
    factor: float = 1.0

    def bill(
        self,
        prompt: int | None,
        cached: int | None,
        written: int | None,
        output: int | None,
        by_ttl: Iterable[tuple[str, int]],
    ) -> Bill | None:
        """None if the counts or the table do not determine the cost."""
        if prompt is None or cached is None or output is None:
            return None
        rates = self.schedule.rates(prompt)
        special = rates and _special(cached, written or 0, by_ttl, rates)
        if rates is None or special is None:
            return None
        plain = prompt - cached - (written or 0)
        generated = output * rates.output
        cost = plain * rates.input + special + generated
        return Bill(cost * self.factor, (prompt * rates.input + generated) * self.factor)


class Price(NamedTuple):
    """What one model costs."""

    usual: Tariff
    tiers: Mapping[str, Schedule]
    """Tiers with their own prices."""
    factors: Mapping[str, float]
    """Tiers that multiply all prices, such as a region."""
    provider: str = ""
    """The provider that bills these prices, by its name in the table."""

    def bill(self, record: RequestRecord) -> Bill | None:
        """None if the record or the table does not determine the cost."""
        tariff = self.tariff(record.tier)
        counts = record.prompt_tokens, record.cached_tokens, record.written_tokens, record.output_tokens
        return tariff and tariff.bill(*counts, record.written_by_ttl)

    def bills(self, columns: RequestColumns) -> Iterator[Bill | None]:
        """`bill` for each request."""
        counts = (
            columns.prompt_tokens,
            columns.cached_tokens,
            columns.written_tokens,
            columns.output_tokens,
            columns.written_by_ttl,
        )
        if not columns.tier:
            return map(self.usual.bill, *counts)
        tariffs = {tier: self.tariff(tier) for tier in set(columns.tier)}
        rows = zip(columns.tier, zip(*counts, strict=True), strict=True)
        return ((tariff := tariffs[tier]) and tariff.bill(*row) for tier, row in rows)

    def tariff(self, tier: str) -> Tariff | None:
        """None if the table lacks a word of the tier, or if two of them exclude each other."""
        schedules: list[Schedule | None] = []
        factor = 1.0
        for word in filter(None, tier.split("+")):
            if word in self.factors:
                factor *= self.factors[word]
            else:
                schedules.append(self.tiers.get(word) or self.tiers.get(_STANDS_FOR.get(word, "")))
        if not schedules:
            return self.usual._replace(factor=factor)
        (schedule, *others) = schedules
        return None if schedule is None or others else Tariff(schedule, factor)


def _special(cached: int, written: int, by_ttl: Iterable[tuple[str, int]], rates: Rates) -> float | None:
    """Dollars for cache reads and writes; None if there were some and the table has no price for them."""
    split = dict(by_ttl)
    split["default"] = written - sum(split.values())
    parts = [(cached, rates.read), *((tokens, rates.written.get(ttl)) for ttl, tokens in split.items())]
    total = 0.0
    for tokens, rate in parts:
        if tokens > 0:
            if rate is None:
                return None
            total += tokens * rate
    return total


def price_of(entry: object) -> Price | None:
    """None for entries without a price for every token (images, audio, LiteLLM's `sample_spec`)."""
    if not isinstance(entry, dict) or _thinks_apart(entry):
        return None
    usual = _stepped(entry) or _schedule(entry)
    if usual is None:
        return None
    words = {
        word if f"_{word}" not in _SUFFIXES.values() else "batch" for key in entry if (word := _tier(key))
    }
    found = {word: _schedule(entry, _SUFFIXES.get(word, f"_{word}")) for word in words}
    tiers = {word: schedule for word, schedule in found.items() if schedule is not None}
    explicit = _dollars(entry, _EXPLICIT_READ)
    if explicit and not usual.long:
        tiers["explicit_cache"] = Schedule(usual.usual._replace(read=explicit))
    return Price(Tariff(usual), tiers, _factors(entry), str(entry.get("litellm_provider", "")))


def _tier(key: str) -> str:
    match = _TIER.fullmatch(key)
    return match[1] if match else ""


def _thinks_apart(entry: Mapping[str, object]) -> bool:
    """Whether reasoning has another price: logs do not split the output, so such a model cannot be billed."""
    steps = entry.get("tiered_pricing")
    parts = [entry, *(steps if isinstance(steps, list) else ())]
    found = [part for part in parts if isinstance(part, dict) and part.get(_THINKING)]
    return any(part[_THINKING] != part.get(_OUTPUT) for part in found)


def _schedule(entry: Mapping[str, object], tier: str = "") -> Schedule | None:
    """`tier` is the suffix of the tier's field names."""
    usual = _rates(entry, [tier])
    if usual is None:
        return None
    edges = sorted({int(m[1]) for key in entry if (m := _LONG.fullmatch(key))}, reverse=True)
    # A price that is not repeated for long prompts stays the usual one; for a tier that would be a guess.
    others = [] if tier else [""]
    found = ((edge * 1000, _rates(entry, [f"_above_{edge}k_tokens{tier}", *others])) for edge in edges)
    return Schedule(usual, tuple((edge, rates) for edge, rates in found if rates is not None or tier))


def _stepped(entry: Mapping[str, object]) -> Schedule | None:
    """For entries that list their prices by prompt length."""
    steps = entry.get("tiered_pricing")
    found: list[tuple[int, Rates | None]] = []
    for step in steps if isinstance(steps, list) else ():
        begins = step.get("range") if isinstance(step, dict) else None
        if not isinstance(begins, list) or not begins or not isinstance(begins[0], (int, float)):
            return None
        found.append((int(begins[0]), _rates(step, [""])))
    found.sort(key=lambda pair: pair[0], reverse=True)
    if not found or found[-1][0] != 0 or (first := found.pop()[1]) is None:
        return None
    return Schedule(first, tuple(found))


def _rates(entry: Mapping[str, object], suffixes: list[str]) -> Rates | None:
    into, out = (_dollars(entry, field, *suffixes) for field in (_INPUT, _OUTPUT))
    if into is None or out is None:
        return None
    # A read price of 0 is missing data: no provider serves cached tokens for free that it bills otherwise.
    read = _dollars(entry, _READ, *suffixes) or (None if into else 0.0)
    return Rates(into, out, read, {ttl: _dollars(entry, field, *suffixes) for ttl, field in _WRITTEN.items()})


def _dollars(entry: Mapping[str, object], field: str, *suffixes: str) -> float | None:
    """The first of these fields that the entry has."""
    for suffix in suffixes or ("",):
        value = entry.get(field + suffix)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1:
            return float(value)
    return None


def _factors(entry: Mapping[str, object]) -> dict[str, float]:
    """Factors by which regions and modes multiply all prices."""
    own = entry.get("provider_specific_entry")
    pairs = own.items() if isinstance(own, dict) else ()
    found = {str(name): value for name, value in pairs}
    for key in entry:
        if (region := _REGION.fullmatch(key)) is not None:
            found[f"region_{region[1]}"] = entry[key]
    # Without an uplift in the table a model costs the same in every region.
    found["regional"] = entry.get("regional_endpoint_uplift_multiplier", 1.0)
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value < 100
    }
