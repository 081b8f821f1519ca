"""Rules about a page as a whole: which engine it is from, its only model, whether it has several ranks."""

from collections.abc import Iterable, Iterator

from kvcache_exporter import catalogue as c
from kvcache_exporter.direct.promql import (
    PAGE,
    SEEN,
    DirectRule,
    Names,
    Scope,
    by,
    first_of,
    label_replace,
    on,
    selector,
    with_first,
)
from kvcache_exporter.engines.base import Engine, Rule, Source, source_names

UP = "up"
"""Prometheus' own series for every scrape."""
_MODELS = "process:kvcache_direct_models:group"
_RANKS = "process:kvcache_direct_ranks:count"
_ANY = Source("")
_MARKERS = (c.RUNNING_REQUESTS, c.ENGINE_REQUESTS, c.PROMPT_TOKENS, c.USAGE_RATIO)


def marker(engine: Engine, scope: Scope) -> str:
    """A selector of series that only the engine's pages have: few, if some are on every page."""
    rules = [rule for rule in engine.rules if rule.metric in _MARKERS or not engine.serves]
    return _selector(engine, _names_of(rules), scope)


def _everything(engine: Engine, scope: Scope, *matchers: str) -> str:
    """A selector of all series that the table reads; of a histogram, its count."""
    plain = [name for s in engine.sources() if not s.bare for name in source_names(s, "counter")]
    facts = (fact.family for fact in engine.facts)
    names = [*_names_of(engine.rules), *plain, *facts, *engine.process_families]
    return _selector(engine, names, scope, *matchers)


def _names_of(rules: Iterable[Rule]) -> list[str]:
    return [
        name
        for rule in rules
        for source in rule.sources
        if not source.bare
        for name in (
            (f"{source.family}_count",)
            if rule.metric.kind == "histogram"
            else source_names(source, rule.metric.kind)
        )
    ]


def _selector(engine: Engine, plain: Iterable[str], scope: Scope, *matchers: str) -> str:
    return selector(engine, Names(engine.prefixes, tuple(dict.fromkeys(plain))), _ANY, scope, *matchers)


def page_rules(engines: Iterable[Engine], scope: Scope) -> Iterator[DirectRule]:
    """The series that other rules join with; an engine comes before what may run beside it."""
    process = on(scope.process)
    ordered = sorted(engines, key=lambda engine: not engine.serves)
    yield DirectRule(SEEN, first_of(*(_seen(engine, scope) for engine in ordered), match=process))
    yield DirectRule(_MODELS, first_of(*(_models(engine, scope) for engine in ordered), match=process))
    if ranked := [_ranks(engine, scope) for engine in ordered if engine.sole_rank_is_none]:
        yield DirectRule(_RANKS, first_of(*ranked, match=process))
    yield DirectRule(PAGE, _page(scope, ranked=bool(ranked)))


def _seen(engine: Engine, scope: Scope) -> str:
    scraped = f"timestamp({scope.selected(UP)}) and {on(scope.process)} {marker(engine, scope)}"
    newest = by("max", (*scope.process, *scope.target_labels), scraped)
    return label_replace(newest, "engine", engine.name)


def _models(engine: Engine, scope: Scope) -> str:
    # A table that asks for the only rank looks at whole pages, for families that lack either.
    series = _everything(engine, scope) if engine.sole_rank_is_none else marker(engine, scope)
    model = with_first(series, "sole_model", engine.model_labels)
    return label_replace(by("group", (*scope.process, "sole_model"), model), "engine", engine.name)


def _ranks(engine: Engine, scope: Scope) -> str:
    rank = engine.rank_labels[0]
    each = by("group", (*scope.process, rank), _everything(engine, scope, f'{rank}!=""'))
    return f"{by('count', scope.process, each)} > 1"


def _page(scope: Scope, *, ranked: bool) -> str:
    process, models = on(scope.process), f'{_MODELS}{{sole_model!=""}}'
    one = f"({models} unless {process} {by('count', scope.process, models)} > 1)"
    page = first_of(one, by("group", (*scope.process, "engine"), SEEN), match=process)
    if not ranked:
        return page
    return first_of(label_replace(f"({page}) and {process} {_RANKS}", "ranks", "many"), page, match=process)
