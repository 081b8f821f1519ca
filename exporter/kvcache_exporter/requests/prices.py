"""The price table, a file in the format of LiteLLM's public one, and how a model is looked up in it.

The table (https://github.com/BerriAI/litellm, model_prices_and_context_window.json) is not shipped: prices
change, and a stale one gives numbers that look right.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

from kvcache_exporter.errors import PricesError
from kvcache_exporter.requests.formats.providers import canonical
from kvcache_exporter.requests.rates import Price, price_of

_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2})$")
_MOST_REMEMBERED = 10_000
_OWN_ENGINES = frozenset({"vllm", "hosted_vllm", "sglang", "trtllm", "tensorrt_llm", "llamacpp", "dynamo"})
"""Engines that users run themselves: no provider bills them, whatever their models are called."""


class Prices:
    """A price table; `of` looks a model up by the names that logs use."""

    def __init__(self, table: Mapping[str, Price], as_of: float) -> None:
        self.table = table
        self.as_of = as_of
        """Unix time of the prices: `as_of` of the configuration, else the file's modification time."""
        self._found: dict[tuple[str, str], Price | None] = {}
        self._providers = {price.provider for price in table.values()} - {""}

    def of(self, provider: str, model_name: str) -> Price | None:
        """Tries `provider/model`, then `model`, then both without a leading route and a trailing date.

        A model of a provider in the table never gets another provider's price.
        """
        key = (provider, model_name)
        if key not in self._found:
            if len(self._found) >= _MOST_REMEMBERED:
                self._found.clear()
            self._found[key] = next(self._candidates(provider, model_name), None)
        return self._found[key]

    def _candidates(self, provider: str, model_name: str) -> Iterator[Price]:
        by = canonical(provider)
        for name in _names(by, model_name):
            price = self.table.get(name)
            if price is not None and (name.startswith(f"{by}/") or self._may_bill(by, price)):
                yield price

    def _may_bill(self, provider: str, price: Price) -> bool:
        if not price.provider or f"{price.provider}_".replace("-", "_").startswith(f"{provider}_"):
            return True
        return provider not in self._providers and provider not in _OWN_ENGINES


def _names(provider: str, model_name: str) -> list[str]:
    plain = model_name.rpartition("/")[2]
    names = [f"{provider}/{model_name}", model_name, f"{provider}/{plain}", plain]
    return [*names, *(_DATE.sub("", name) for name in names)]


def load_prices(path: Path, as_of: date | None = None) -> Prices:
    """Raises PricesError if the file cannot be read or prices nothing. Entries without token prices (images,
    audio) and LiteLLM's `sample_spec` are skipped.
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
    table = {name: price for name, entry in data.items() if (price := price_of(entry)) is not None}
    if not table:
        fields = "input_cost_per_token and output_cost_per_token"
        raise PricesError(f"{path}: no entry has {fields}; is it LiteLLM's price table?")
    stated = datetime(as_of.year, as_of.month, as_of.day, tzinfo=UTC).timestamp() if as_of else changed
    return Prices(table, stated)
