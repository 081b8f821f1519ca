"""What one entry of an engine table comes to: an expression with the labels of the exporter's series."""

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
# With one rank on the page its label means nothing; what follows it may be a worker's address.
_SOLE_RANK_DROPPED = "(?:/[^/]*|many)/*(.*?)/*"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one engine's pages; `rank` is the label that its ranks (or workers) get."""

    engine: Engine
    scope: Scope
    rank: str = RANK

    @property
    def key(self) -> tuple[str, ...]:
        """Labels that tell series of one metric apart."""
        return (*self.scope.target, "namespace", "model_name", self.rank)

    def value(self, source: Source, kind: Kind, combine: str = "sum", part: str = "", *more: str) -> str:
        """The source by key, and by the labels `more`; `part` is that of a histogram."""
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
        """Each key from the first source that it has."""
        return first_of(*(self.value(source, kind, combine) for source in sources))

    def _one(self, source: Source, kind: Kind, combine: str, part: str, *more: str) -> str:
        """Added up within a process; two jobs that scrape the same one give the same and not the double."""
        series = self.labelled(source, sample_names(self.engine, source, kind, part))
        within = by(combine, (*self.scope.process, *self.key, *more), series)
        return by("max", (*self.key, *more), within)

    def labelled(self, source: Source, names: Names, *matchers: str, modelless: bool = False) -> str:
        """Raw series with target, model_name and rank beside their own labels."""
        found = self._once(source, names, *matchers)
        # Where ranks may mean nothing, and on routers' pages, some families also lack the model.
        beside = source.bare or not self.engine.serves
        asks_page = modelless or beside or self.engine.sole_rank_is_none
        if asks_page:
            page = f'{PAGE}{{engine="{self.engine.name}"}}'
            found = f"{found} * {on(self.scope.process)} group_left (sole_model, ranks) {page}"
        sole = ("sole_model",) if asks_page else ()
        return self._ranked(source, self._modelled(self.scope.named(found), sole))

    def _once(self, source: Source, names: Names, *matchers: str) -> str:
        """Of ranks that do the same work the lowest; of a family under several names the furthest."""
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
        """An engine's only twins may be those of what stands beside it under names of its own."""
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
