"""Prices of models, read from a file in the field names of LiteLLM's public price table.

The table (https://github.com/BerriAI/litellm, model_prices_and_context_window.json) is not shipped: prices
change, and a stale one gives numbers that look right.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

from kvcache_exporter.errors import PricesError
from kvcache_exporter.model import RequestColumns, RequestRecord

_WRITTEN = {
    "5m": "cache_creation_input_token_cost",
    "30m": "cache_creation_input_token_cost",
    "default": "cache_creation_input_token_cost",
    "1h": "cache_creation_input_token_cost_above_1hr",
    "12h": "cache_creation_input_token_cost_above_12hr",
}
_LONG = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2})$")
_MOST_REMEMBERED = 10_000


class Rates(NamedTuple):
    """US dollars a token; None where the table does not say."""

    input: float
    output: float
    read: float | None
    written: Mapping[str, float | None]
    """By TTL label value: default, 5m, 30m, 1h, 12h."""


class Bill(NamedTuple):
    """What one request cost and what it would have cost without a cache, in US dollars."""

    cost: float
    without_cache: float


class Price(NamedTuple):
    """What one model costs; long prompts may cost more, for every token of the request."""

    usual: Rates
    long: tuple[tuple[int, Rates], ...] = ()
    """Pairs of a prompt length and the rates of longer prompts, longest first."""

    def bill(self, record: RequestRecord) -> Bill | None:
        """None where the record or the table leaves open what the request cost."""
        counts = record.prompt_tokens, record.cached_tokens, record.written_tokens, record.output_tokens
        return self._bill(*counts, record.written_by_ttl)

    def bills(self, columns: RequestColumns) -> Iterator[Bill | None]:
        """As `bill`, for each request."""
        counts = columns.prompt_tokens, columns.cached_tokens, columns.written_tokens, columns.output_tokens
        return map(self._bill, *counts, columns.written_by_ttl)

    def _bill(
        self,
        prompt: int | None,
        cached: int | None,
        written: int | None,
        output: int | None,
        by_ttl: Iterable[tuple[str, int]],
    ) -> Bill | None:
        if prompt is None or cached is None or output is None:
            return None
        rates = next((rates for above, rates in self.long if prompt > above), self.usual)
        special = _special(cached, written or 0, by_ttl, rates)
        if special is None:
            return None
        plain = prompt - cached - (written or 0)
        generated = output * rates.output
        return Bill(plain * rates.input + special + generated, prompt * rates.input + generated)


def _special(cached: int, written: int, by_ttl: Iterable[tuple[str, int]], rates: Rates) -> float | None:
    """Dollars for tokens read and written; None if there are some and the table has no price for them."""
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


class Prices:
    """A price table; `of` finds a model as logs name it."""

    def __init__(self, table: Mapping[str, Price], as_of: float) -> None:
        self.table = table
        self.as_of = as_of
        """Unix time the prices are of: what the configuration says, else the file's own time."""
        self._found: dict[tuple[str, str], Price | None] = {}

    def of(self, provider: str, model_name: str) -> Price | None:
        """`provider/model`, then the model, then both without a leading route and without a trailing date."""
        key = (provider, model_name)
        if key not in self._found:
            if len(self._found) >= _MOST_REMEMBERED:
                self._found.clear()
            names = _names(provider, model_name)
            self._found[key] = next((self.table[name] for name in names if name in self.table), None)
        return self._found[key]


def _names(provider: str, model_name: str) -> list[str]:
    plain = model_name.rpartition("/")[2]
    names = [f"{provider}/{model_name}", model_name, f"{provider}/{plain}", plain]
    return [*names, *(_DATE.sub("", name) for name in names)]


def load_prices(path: Path, as_of: date | None = None) -> Prices:
    """Raises PricesError if the file cannot be read or prices nothing. Entries without token prices (images,
    audio) and LiteLLM's `sample_spec` are passed over.
    """
    try:
        data = json.loads(path.read_bytes())
        changed = path.stat().st_mtime
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PricesError(
            f"{path}: cannot read prices: {reason}; expected the JSON of LiteLLM's price table"
        ) from error
    if not isinstance(data, dict):
        raise PricesError(
            f"{path}: found a {type(data).__name__}, expected a mapping of model names to prices"
        )
    table = {name: price for name, entry in data.items() if (price := _price(entry)) is not None}
    if not table:
        fields = "input_cost_per_token and output_cost_per_token"
        raise PricesError(f"{path}: no entry has {fields}; is it LiteLLM's price table?")
    stated = datetime(as_of.year, as_of.month, as_of.day, tzinfo=UTC).timestamp() if as_of else changed
    return Prices(table, stated)


def _price(entry: object) -> Price | None:
    if not isinstance(entry, dict):
        return None
    usual = _rates(entry, "")
    if usual is None:
        return None
    edges = sorted({int(m[1]) for key in entry if (m := _LONG.fullmatch(key))}, reverse=True)
    found = ((edge * 1000, _rates(entry, f"_above_{edge}k_tokens")) for edge in edges)
    return Price(usual, tuple((edge, rates) for edge, rates in found if rates is not None))


def _rates(entry: Mapping[str, object], suffix: str) -> Rates | None:
    into, out = (_dollars(entry, f"{kind}_cost_per_token", suffix) for kind in ("input", "output"))
    if into is None or out is None:
        return None
    # A read price of 0 is missing data, not a gift: no provider reads for nothing what it bills otherwise.
    read = _dollars(entry, "cache_read_input_token_cost", suffix) or (None if into else 0.0)
    return Rates(into, out, read, {ttl: _dollars(entry, field, suffix) for ttl, field in _WRITTEN.items()})


def _dollars(entry: Mapping[str, object], field: str, suffix: str) -> float | None:
    """A field that long prompts do not have a price of their own for keeps its usual one."""
    for key in (field + suffix, field):
        value = entry.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1:
            return float(value)
    return None
