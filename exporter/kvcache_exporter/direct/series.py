"""Turns one entry of an engine table into an expression with the labels of the exporter's series."""

from dataclasses import dataclass

from kvcache_exporter.catalogue import Kind
from kvcache_exporter.direct.promql import (
    PAGE,
    Names,
    Scope,
    by,
    first_of,
    label_join,
    label_replace,
    on,
    sample_names,
    selector,
    with_first,
)
from kvcache_exporter.engines.base import Engine, Source

RANK = "engine_rank"
_STRIPPED = "/*(.*?)/*"
# If there is one rank on the page, its label means nothing; a worker's address may follow it.
_SOLE_RANK_DROPPED = "(?:/[^/]*|many)/*(.*?)/*"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one engine's pages; `rank` is the label for its ranks (or workers)."""

    engine: Engine
    scope: Scope
    rank: str = RANK

    @property
    def key(self) -> tuple[str, ...]:
        """Labels that tell series of one metric apart."""
        return (*self.scope.target, "namespace", "model_name", self.rank)

    def value(self, source: Source, kind: Kind, combine: str = "sum", part: str = "", *more: str) -> str:
        """The source's value by key and by the labels `more`; `part` selects a part of a histogram."""
        found = self._one(source, kind, combine, part, *more)
        if source.plus is not None:
            found = f"({found}\n+ {self._one(source.plus, kind, combine, part, *more)})"
        if source.minus is None:
            return found
        taken = self._one(source.minus, kind, combine, part, *more)
        if source.minus_optional:
            taken = f"({taken}\nor 0 * {found})"
        return f"clamp_min({found}\n- {taken}, 0)"

    def first(self, sources: tuple[Source, ...], kind: Kind, combine: str = "sum") -> str:
        """Each key's value from the first source that has it."""
        return first_of(*(self.value(source, kind, combine) for source in sources))

    def _one(self, source: Source, kind: Kind, combine: str, part: str, *more: str) -> str:
        """Summed within a process; two jobs that scrape the same process do not double the value."""
        series = self.labelled(source, sample_names(self.engine, source, kind, part))
        within = by(combine, (*self.scope.process, *self.key, *more), series)
        return by("max", (*self.key, *more), within)

    def labelled(self, source: Source, names: Names, *matchers: str, modelless: bool = False) -> str:
        """Raw series with their own labels and target, model_name and rank."""
        found = self._once(source, names, *matchers)
        # On routers' pages, and where ranks may mean nothing, some families lack the model too.
        beside = source.bare or not self.engine.serves
        asks_page = modelless or beside or self.engine.sole_rank_is_none
        if asks_page:
            page = f'{PAGE}{{engine="{self.engine.name}"}}'
            found = f"{found} * {on(self.scope.process)} group_left (sole_model, ranks) {page}"
        sole = ("sole_model",) if asks_page else ()
        return self._ranked(source, self._modelled(self.scope.named(found), sole))

    def _once(self, source: Source, names: Names, *matchers: str) -> str:
        """Of ranks that do the same work, the lowest; of a family under several names, the largest."""
        every = selector(self.engine, names, source, self.scope, *matchers)
        twins = ", ".join(self.engine.twin_labels)
        if twins and not self._has_twins(source):
            twins = ""
        if twins:
            zeros = (f'{label}=~"0?"' for label in self.engine.twin_labels)
            lowest = selector(self.engine, names, source, self.scope, *matchers, *zeros)
            every = f"{lowest} or ignoring ({twins}) {every}"
        return f"max without ({twins}) ({every})" if twins or names.several else every

    def _has_twins(self, source: Source) -> bool:
        """False if the engine's only twins belong to something beside it, under names of its own."""
        return source.bare or not any(s.bare for rule in self.engine.rules for s in rule.sources)

    def _modelled(self, found: str, sole: tuple[str, ...]) -> str:
        return with_first(found, "model_name", (*self.engine.model_labels, *sole))

    def _ranked(self, source: Source, found: str) -> str:
        labels = self.engine.rank_labels
        if self.engine.sole_rank_is_none and not source.unranked:
            joined = label_join(found, self.rank, "/", ("ranks", *labels))
            return label_replace(joined, self.rank, "$1", self.rank, _SOLE_RANK_DROPPED)
        labels = labels[1:] if source.unranked else labels
        if not labels:
            return found
        joined = label_join(found, self.rank, "/", labels)
        return label_replace(joined, self.rank, "$1", self.rank, _STRIPPED) if labels[1:] else joined
