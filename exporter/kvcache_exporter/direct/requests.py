"""Rules over what the tables' rules recorded: the request threshold, caching, missing families."""

from collections.abc import Iterator

from kvcache_exporter import catalogue as c
from kvcache_exporter.direct.promql import DirectRule, Scope, by, first_of, made, on, sample_names
from kvcache_exporter.direct.series import Reader
from kvcache_exporter.direct.targets import up_with
from kvcache_exporter.engines.base import Engine, Fact, Rule, Source

BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256, 512)
"""Block sizes for which a threshold can be found."""
_SMALL_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""The edges of vLLM's token histograms that are smaller than the largest block."""


def derived_rules(engines: tuple[Engine, ...], scope: Scope) -> Iterator[DirectRule]:
    serving = [engine for engine in engines if engine.serves]
    if caching := [e for engine in serving for e in _caching(engine, scope)]:
        yield DirectRule(c.PREFIX_CACHING_ENABLED.name, first_of(*caching))
    if thresholds := [t for engine in serving for t in _thresholds(engine, scope)]:
        yield DirectRule(c.REQUEST_HIT_THRESHOLD.name, first_of(*thresholds))
    yield DirectRule(c.TARGET_MISSING.name, _missing(engines, scope))


def _caching(engine: Engine, scope: Scope) -> Iterator[str]:
    for fact in engine.facts:
        if fact.name == "prefix_caching":
            off, on_ = (_stated(engine, fact, scope, value) for value in ("False", "True"))
            yield first_of(on_, f"0 * {off}")


def _stated(engine: Engine, fact: Fact, scope: Scope, value: str) -> str:
    """1 for each key whose page states the value; the family has no label for the model."""
    reader, source = Reader(engine, scope), Source(fact.family)
    names = sample_names(engine, source, "info")
    says = reader.labelled(source, names, f'{fact.labels[0]}="{value}"', modelless=True)
    return by("group", reader.key, says)


def _thresholds(engine: Engine, scope: Scope) -> Iterator[str]:
    """The smallest edge of both histograms that is at least as large as a block."""
    if not any(rule.metric is c.ENGINE_COMPUTED_PROMPT_TOKENS for rule in engine.rules):
        return
    says_block = any(fact.name == "block_size" and fact.labels for fact in engine.facts)
    known = BLOCK_SIZES if says_block and engine.default_block_size > 1 else ()
    for size in known:
        yield _smallest_edge(engine, size, scope, f'block_size="{size}"')
    silent = ('block_size=""',) if known else ()
    yield _smallest_edge(engine, engine.default_block_size, scope, *silent)


def _smallest_edge(engine: Engine, least: int, scope: Scope, *matchers: str) -> str:
    """Puts all observations into the lowest bucket, so that the maximum is its edge."""
    key = Reader(engine, scope).key
    below = "|".join(str(edge) for edge in _SMALL_EDGES if edge < least)
    edges = (f'le!~"({below})([.]0)?"',) if below else ()
    prompt = made(f"{c.ENGINE_PROMPT_TOKENS.name}_bucket", *edges)
    computed = made(f"{c.ENGINE_COMPUTED_PROMPT_TOKENS.name}_bucket")
    said = made(c.TARGET_INFO.name, f'engine="{engine.name}"', *matchers)
    common = f"{prompt} and {on((*key, 'le'))} {computed} and {on(scope.target)} {said}"
    return f"histogram_quantile(1, 0 * ({common}) + 1)"


def _missing(engines: tuple[Engine, ...], scope: Scope) -> str:
    return first_of(
        *(_missing_of(engine, scope) for engine in engines if any(rule.needed for rule in engine.rules)),
        f"0 * {up_with(scope)}",
    )


def _missing_of(engine: Engine, scope: Scope) -> str:
    """How many of the needed rules found nothing; needed rules have no tier or the device's."""
    needed = [rule for rule in engine.rules if rule.needed]
    up = up_with(scope, f'engine="{engine.name}"')
    present = by("group", (*scope.target, "__name__"), _recorded(needed))
    counted = f"({by('count', scope.target, present)} or 0 * {up})"
    found = f"{len(needed)} - {counted} and {on(scope.target)} {up}"
    if not engine.alive_families:
        return found
    alive = [rule for rule in engine.rules if rule.sources[0].family in engine.alive_families]
    return f"{found} and {on(scope.target)} {_recorded(alive)}"


def _recorded(rules: list[Rule]) -> str:
    names = (rule.metric.name + ("_count" if rule.metric.kind == "histogram" else "") for rule in rules)
    return f'{{__name__=~"{"|".join(dict.fromkeys(names))}", job="", tier=~"|device"}}'
