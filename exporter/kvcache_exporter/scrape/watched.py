"""The counters of one key that windows read: indices into a page's values, or columns of a history."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

from kvcache_exporter.catalogue import Metric
from kvcache_exporter.windows import Terms


@dataclass(frozen=True, slots=True)
class Watched:
    """The terms that windows need of one key."""

    basis: str
    cached: Terms | None
    prompt: Terms | None
    _: KW_ONLY
    requests: tuple[Terms, Terms, Terms] | None = None
    """Requests that computed at most the threshold, those with a prompt of at most that, and all."""
    counters: dict[Metric, Terms] = field(default_factory=dict)
    """The metrics of WATCHED_METRICS that the key has."""
    prefill_tokens: Terms | None = None
    doubt: Terms | None = None
    """Counters whose increase contradicts a cached count of zero."""

    @property
    def indices(self) -> frozenset[int]:
        """Indices of all counters above, subtracted ones included."""
        single = (self.cached, self.prompt, self.prefill_tokens)
        terms = filter(None, (*single, *(self.requests or ()), *self.counters.values()))
        return frozenset(i for parts in terms for part in parts for i in part)

    def in_columns(self, columns: Mapping[int, int]) -> "Watched":
        """The same terms, with a history's columns in place of a page's indices."""

        def translate(terms: Terms | None) -> Terms | None:
            return terms and in_columns(terms, columns)

        requests = self.requests and tuple(filter(None, map(translate, self.requests)))
        return replace(
            self,
            cached=translate(self.cached),
            prompt=translate(self.prompt),
            requests=requests if requests and len(requests) == 3 else None,
            counters={metric: t for metric, terms in self.counters.items() if (t := translate(terms))},
            prefill_tokens=translate(self.prefill_tokens),
            doubt=translate(self.doubt),
        )


def in_columns(terms: Terms, columns: Mapping[int, int]) -> Terms:
    return Terms(*(tuple(columns[i] for i in part) for part in terms))
