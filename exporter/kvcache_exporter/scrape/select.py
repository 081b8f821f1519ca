"""Finds, on one page's layout, the series that an engine table asks for."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from kvcache_exporter.catalogue import Kind
from kvcache_exporter.engines.base import Engine, Source, source_names
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.model import RawSeries
from kvcache_exporter.windows import Terms

PROCESS_START = "process_start_time_seconds"


class Key(NamedTuple):
    """A model on a data-parallel rank of the target."""

    model_name: str
    rank: str


@lru_cache(maxsize=64)
def wanted_names(engines: tuple[Engine, ...]) -> frozenset[bytes]:
    """Every sample name that these engines' tables use."""
    names = {PROCESS_START}
    for engine in engines:
        plain = {
            name
            for rule in engine.rules
            for s in rule.sources
            if not s.bare
            for name in _names(s, rule.metric.kind)
        }
        for source in engine.sources():
            if source.bare:
                continue
            if source.part or source.family not in {s.family for r in engine.rules for s in r.sources}:
                plain.update(source_names(source, "counter"))
        plain.update(fact.family for fact in engine.facts)
        plain.update(engine.process_families)
        names.update(prefix + name for prefix in engine.prefixes for name in plain)
        names.update(n for s in engine.sources() if s.bare for n in source_names(s, "counter"))
    return frozenset(name.encode() for name in names)


def _names(source: Source, kind: Kind) -> tuple[str, ...]:
    parts = [part for part in (source, source.minus, source.plus) if part]
    return tuple(name for part in parts for name in source_names(part, kind))


def detect(engines: Iterable[Engine], series: Iterable[RawSeries]) -> Engine | None:
    """The engine with most families on the page, rather than a router or cache beside it; None if none."""
    listed = list(series)
    counts = [(sum(_is_own(engine, item) for item in listed), engine) for engine in engines]
    best = max(counts, key=lambda pair: (pair[0] > 0 and pair[1].serves, pair[0]))
    return best[1] if best[0] else None


def recognise(candidates: Sequence[Engine], series: Iterable[RawSeries], target: str) -> Engine:
    """The engine behind a page; a single candidate is taken as it is. Raises ScrapeError."""
    engine = detect(candidates, series)
    if engine is None and len(candidates) == 1:
        return candidates[0]
    if engine is None:
        known = ", ".join(candidate.name for candidate in candidates)
        raise ScrapeError(
            "unknown_engine",
            f"{target}: the page has no family of a known engine ({known}); check that the "
            "address is the engine's own metrics port",
        )
    return engine


def _is_own(engine: Engine, item: RawSeries) -> bool:
    """Whether a series is the engine's own: it has its prefix and is not re-exported by a router."""
    if not item.name.startswith(engine.prefixes):
        return False
    labels = {label for label, _ in item.labels}
    return labels.isdisjoint(engine.foreign_labels) and (not engine.own_label or engine.own_label in labels)


class Selection:
    """The series of one engine on one page, looked up by table entries."""

    def __init__(self, engine: Engine, series: tuple[RawSeries, ...]) -> None:
        self._engine = engine
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._bare: dict[str, list[int]] = defaultdict(list)
        self.labels = [dict(item.labels) for item in series]
        self._index(series)
        models = {model for labels in self.labels if (model := self._model(labels))}
        self._only_model = models.pop() if len(models) == 1 else ""
        ranks = {labels[name] for labels in self.labels for name in engine.rank_labels[:1] if name in labels}
        self._sole_rank = engine.sole_rank_is_none and len(ranks) == 1

    def _index(self, series: tuple[RawSeries, ...]) -> None:
        for prefix in reversed(self._engine.prefixes):
            found: dict[str, list[int]] = defaultdict(list)
            for index, item in enumerate(series):
                if item.name.startswith(prefix) and _is_own(self._engine, item):
                    found[item.name.removeprefix(prefix)].append(index)
            # A page with two prefixes has every series twice: the first prefix of the table wins.
            self._by_name.update({name: self._drop_twins(indices) for name, indices in found.items()})

        bare = {name for s in self._engine.sources() if s.bare for name in source_names(s, "counter")}
        for index, item in enumerate(series):
            if item.name in bare:
                self._bare[item.name].append(index)
        self._bare.update({name: self._drop_twins(indices) for name, indices in self._bare.items()})

    def _drop_twins(self, indices: list[int]) -> list[int]:
        twins = self._engine.twin_labels
        if not twins or len(indices) == 1:
            return indices
        lowest: dict[frozenset[tuple[str, str]], tuple[tuple[str, ...], int]] = {}
        for index in indices:
            labels = self.labels[index]
            rank = tuple(labels.get(twin, "").zfill(6) for twin in twins)
            rest = frozenset(item for item in labels.items() if item[0] not in twins)
            if rest not in lowest or rank < lowest[rest][0]:
                lowest[rest] = (rank, index)
        return sorted(index for _, index in lowest.values())

    def pids(self) -> dict[str, frozenset[str]]:
        """Process ids on the page by rank."""
        found: dict[str, set[str]] = defaultdict(set)
        for family in self._engine.process_families:
            for index in self._by_name.get(family, []):
                labels = {**self.labels[index], "family": family}
                if pid := labels.pop("pid", ""):
                    found[repr(sorted(labels.items()))].add(pid)
        return {rank: frozenset(ids) for rank, ids in found.items()}

    def merged(self) -> frozenset[str]:
        """Addresses (host:port) of the engines whose pages were merged into this one."""
        found = {labels.get(self._engine.merged_label, "") for labels in self.labels}
        return frozenset(address.rpartition("//")[2].partition("/")[0] for address in found if address)

    def has_family(self, family: str) -> bool:
        return any(family + suffix in self._by_name for suffix in ("", "_total", "_sum", "_count", "_bucket"))

    def key(self, index: int, *, unranked: bool = False) -> Key:
        labels = self.labels[index]
        first = 1 if unranked or self._sole_rank else 0
        ranks = [labels[name] for name in self._engine.rank_labels[first:] if labels.get(name)]
        return Key(self._model(labels) or self._only_model, "/".join(ranks))

    def _model(self, labels: Mapping[str, str]) -> str:
        return next((labels[name] for name in self._engine.model_labels if labels.get(name)), "")

    def indices(self, name: str, source: Source) -> list[int]:
        """Series of one sample name that match the source's label conditions."""
        found = (self._bare if source.bare else self._by_name).get(name, [])
        for label, accepted in source.where:
            found = [index for index in found if self.labels[index].get(label, "") in accepted]
        return found

    def terms(self, source: Source, kind: Kind) -> dict[Key, Terms]:
        """The terms of each key; empty if the page does not have the source."""
        plus: dict[Key, list[int]] = defaultdict(list)
        for name in source_names(source, kind):
            for index in self.indices(name, source):
                plus[self.key(index, unranked=source.unranked)].append(index)
            if plus:
                break
        if source.plus is not None:
            for key, more in self.terms(source.plus, kind).items():
                plus[key] += more.plus
        if source.minus is None:
            return {key: Terms(tuple(indices)) for key, indices in plus.items()}
        minus = self.terms(source.minus, kind)
        return {
            key: Terms(tuple(indices), minus[key].plus if key in minus else ())
            for key, indices in plus.items()
            if key in minus or source.minus_optional
        }
