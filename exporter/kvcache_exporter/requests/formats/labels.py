"""Label values and caching contract of requests, determined once per provider, model and group."""

from typing import Any

from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.formats.minimums import Caching, caching
from kvcache_exporter.requests.formats.values import MAX_LABEL, label

_REMEMBERED = 4096


Labels = tuple[str, str, str, int, int]
"""Provider, model name, group, granule and minimum tokens. A plain tuple, which CPython unpacks fastest."""


class Labeller:
    """Caches its results in bounded memory, however many model names a log has."""

    def __init__(self, options: DecoderOptions, provider: str, contract: Caching) -> None:
        self._provider = label(options.provider or provider)
        self._model_name = label(options.model_name)
        self._contract, self._granule = contract, options.granule
        self.known: dict[tuple[Any, Any, Any], Labels] = {}

    def labels(self, provider: Any, model: Any, group: Any) -> Labels:
        """Never fails: an unusable value counts as absent."""
        try:
            return self.known[provider, model, group]
        except (KeyError, TypeError):
            labels = self._work_out(label(provider), label(model), label(group))
        if all(
            value is None or (type(value) is str and len(value) < MAX_LABEL)
            for value in (provider, model, group)
        ):
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            self.known[provider, model, group] = labels
        return labels

    def _work_out(self, provider: str, model: str, group: str) -> Labels:
        provider_name, model_name = provider or self._provider, model or self._model_name
        contract = caching(provider_name, model_name, self._contract)
        if self._granule:
            contract = contract.by(self._granule)
        return provider_name, model_name, group, contract.granule, contract.minimum_tokens
