"""Rules about a target as a whole: whether it is up, its facts, deprecated families, cache resets."""

from collections.abc import Iterable, Iterator

from kvcache_exporter import catalogue as c
from kvcache_exporter.direct.pages import UP
from kvcache_exporter.direct.promql import (
    PAGE,
    SEEN,
    DirectRule,
    Names,
    Scope,
    by,
    first_of,
    label_join,
    label_replace,
    made,
    on,
    sample_names,
    selector,
)
from kvcache_exporter.direct.series import Reader
from kvcache_exporter.engines.base import Basis, Engine, Fact, Source, source_names

_MEMORY = "1d"
"""How long a target without a page is remembered as an engine."""
_TEXTS = ("prefix_caching", "block_size", "hash_algorithm", "cache_dtype")
_SPELLINGS = (("true", "True"), ("false", "False"), ("", "None"))
_SAID = "(.*[0-9].*)"
"""A size, neither missing nor None."""
_DURATION = "scrape_duration_seconds"
_START = "process_start_time_seconds"


def target_rules(engines: tuple[Engine, ...], scope: Scope) -> Iterator[DirectRule]:
    """In the order in which they read each other; only the first two exist while a target is down."""
    known = f"last_over_time({SEEN}[{_MEMORY}])"
    engine = f"{on(scope.process)} group_left (engine) topk by ({', '.join(scope.process)}) (1, {known}) ^ 0"
    up = scope.named(f"{scope.selected(UP)} * {engine}")
    yield DirectRule(c.TARGET_UP.name, by("max", (*scope.target, "engine"), up))
    took = f"{scope.selected(_DURATION)} and {on(scope.process)} {known}"
    yield DirectRule(c.TARGET_SCRAPE_DURATION.name, per_target(scope, took))
    # Otherwise pods that are gone would stay for a day.
    still = f"{known} and {on(scope.process)} {scope.selected(UP)}"
    yield DirectRule(c.TARGET_LAST_SUCCESS.name, per_target(scope, still))
    yield DirectRule(c.TARGET_INFO.name, _info(engines, scope))
    started = f"{scope.selected(_START)} > 0 and {on(scope.process)} {PAGE}"
    yield DirectRule(c.TARGET_START.name, per_target(scope, started))
    yield DirectRule(c.AGE.name, f"time() - {made(c.TARGET_START.name)}")
    yield DirectRule(c.TARGET_DEPRECATED.name, _deprecated(engines, scope))
    yield DirectRule(c.CACHE_RESETS.name, _cache_resets(engines, scope))


def per_target(scope: Scope, expression: str) -> str:
    return by("max", scope.target, scope.named(expression))


def up_with(scope: Scope, *matchers: str) -> str:
    return by("group", scope.target, f"{made(c.TARGET_UP.name, *matchers)} == 1")


def _info(engines: tuple[Engine, ...], scope: Scope) -> str:
    target = on(scope.target)
    base = by("group", (*scope.target, "engine"), scope.named(SEEN))
    # Without the label engine: two processes with one name may be different engines.
    any_ = by("group", scope.target, scope.named(SEEN))
    bases = [_basis(engine, basis, scope) for engine in engines for basis in engine.bases]
    facts = [fact for engine in engines for fact in _facts(engine, scope)]
    return (
        f"{base}\n* {target} group_left (hit_basis) ({first_of(*bases, any_, match=target)})"
        f"\n* {target} group_left ({', '.join(_TEXTS)}) ({first_of(*facts, any_, match=target)})"
    )


def _basis(engine: Engine, basis: Basis, scope: Scope) -> str:
    """Targets that have the pair of counters."""
    reader = Reader(engine, scope)
    pair = reader.value(basis.prompt, "counter")
    if not basis.absent_unless:
        pair = f"{pair} and {on(reader.key)} {reader.value(basis.cached[0], 'counter')}"
    return label_replace(by("group", scope.target, pair), "hit_basis", basis.name)


def _facts(engine: Engine, scope: Scope) -> Iterator[str]:
    """One series per target with facts; of ranks that differ, one is taken, as in the exporter."""
    one = f"topk by ({', '.join(scope.target)}) (1, "
    for fact in engine.facts:
        if fact.name in _TEXTS and not fact.labels:
            value = Reader(engine, scope).value(Source(fact.family), "gauge", "max")
            counted = f'count_values by ({", ".join(scope.target)}) ("{fact.name}", {value})'
            yield f"{one}{by('group', (*scope.target, fact.name), counted)})"
    stated = [fact for fact in engine.facts if fact.name in _TEXTS and fact.labels]
    for family in dict.fromkeys(fact.family for fact in stated):
        own = [fact for fact in stated if fact.family == family]
        names = dict.fromkeys(fact.name for fact in own)
        yield f"{one}{by('group', (*scope.target, *names), _texts(engine, own, scope))})"


def _texts(engine: Engine, facts: list[Fact], scope: Scope) -> str:
    source = Source(facts[0].family)
    found = scope.named(selector(engine, sample_names(engine, source, "info"), source, scope))
    for name in dict.fromkeys(fact.name for fact in facts):
        *better, last = [fact.labels for fact in facts if fact.name == name]
        if last != (name,):
            found = label_join(found, name, "", last)
        for value, spelled in _SPELLINGS:
            found = label_replace(found, name, value, name, spelled)
        for (label,) in reversed(better):
            found = label_replace(found, name, "$1", label, _SAID)
    return found


def _deprecated(engines: tuple[Engine, ...], scope: Scope) -> str:
    listed = {engine: dict.fromkeys(s for s in engine.sources() if s.deprecated) for engine in engines}
    found = [
        scope.named(selector(engine, Names(engine.prefixes, _any_kind(sources)), Source(""), scope))
        for engine, sources in listed.items()
        if sources
    ]
    none = f"0 * {up_with(scope)}"
    if not found:
        return none
    present = by("group", (*scope.target, "__name__"), first_of(*found))
    return first_of(by("count", scope.target, present), none)


def _any_kind(sources: Iterable[Source]) -> tuple[str, ...]:
    return tuple(name for source in sources for name in source_names(source, "counter"))


def _cache_resets(engines: tuple[Engine, ...], scope: Scope) -> str:
    calls = [
        f"{selector(engine, sample_names(engine, source, 'counter'), source, scope)} "
        f'and {on(scope.process)} {SEEN}{{engine="{engine.name}"}}'
        for engine in engines
        for source in engine.cache_resets
    ]
    processes = (by("sum", (*scope.process, *scope.target), scope.named(call)) for call in calls)
    counted = [by("max", scope.target, process) for process in processes]
    serving = f'engine=~"{"|".join(engine.name for engine in engines if engine.serves)}"'
    return first_of(*counted, f"0 * {up_with(scope, serving)}")
