"""Finds the pairs of counters on a page that give a hit rate."""

from collections.abc import Iterable
from typing import NamedTuple

from kvcache_exporter.catalogue import Metric
from kvcache_exporter.engines.base import Engine, Source
from kvcache_exporter.scrape.select import Key, Selection
from kvcache_exporter.windows import Terms


class Claim(NamedTuple):
    """One pair of counters that gives a hit rate, summed over all keys."""

    cached: Terms
    prompt: Terms


class BasisTerms(NamedTuple):
    """The pair of counters that gives a key's hit rate."""

    basis: str = ""
    cached: Terms | None = None
    prompt: Terms | None = None
    doubt: Terms | None = None
    """Counters whose increase contradicts a cached count of zero."""


def first_present(sources: Iterable[Source], metric: Metric, select: Selection) -> dict[Key, Terms]:
    """Terms by key, from the first source that the key has."""
    chosen: dict[Key, Terms] = {}
    for source in sources:
        chosen = {**select.terms(source, metric.kind), **chosen}
    return chosen


def bases_of(engine: Engine, select: Selection) -> dict[Key, BasisTerms]:
    """The first complete pair of each key."""
    chosen: dict[Key, BasisTerms] = {}
    for basis in engine.bases:
        first, *more = [select.terms(source, "counter") for source in basis.cached]
        prompt = select.terms(basis.prompt, "counter")
        doubt = None
        if basis.absent_unless:
            first = first or {key: Terms(()) for key in prompt}
            doubt = None if any(t.plus for t in first.values()) else merged(basis.absent_unless, select)
        for key in first.keys() & prompt.keys() - chosen.keys():
            parts = [first[key], *(part[key] for part in more if key in part)]
            cached = Terms(
                tuple(i for part in parts for i in part.plus), tuple(i for part in parts for i in part.minus)
            )
            chosen[key] = BasisTerms(basis.name, cached, prompt[key], doubt)
    return chosen


def claims_of(engine: Engine, select: Selection) -> list[Claim]:
    """Every pair of the page, including old names beside new ones: they should agree."""
    found = []
    for basis in (*engine.bases, *engine.witnesses):
        cached, prompt = (merged(part, select) for part in (basis.cached, (basis.prompt,)))
        if prompt.plus and (cached.plus or basis.absent_unless):
            found.append(Claim(cached, prompt))
    return found


def merged(sources: Iterable[Source], select: Selection) -> Terms:
    """The terms of all sources on the page, over all keys."""
    parts = [terms for source in sources for terms in select.terms(source, "counter").values()]
    return Terms(tuple(i for t in parts for i in t.plus), tuple(i for t in parts for i in t.minus))
