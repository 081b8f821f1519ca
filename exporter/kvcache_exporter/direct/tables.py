"""Recording rules for the entries of engine tables: one rule per metric and tier, over all engines."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.direct.promql import DirectRule, Scope, first_of, made, on
from kvcache_exporter.direct.series import Reader
from kvcache_exporter.engines.base import HISTOGRAM_PARTS, Engine, Rule, Source

_FILL = (c.CAPACITY_TOKENS, c.USED_TOKENS, c.USAGE_RATIO)
_CAPACITIES = {"device_tokens": "device", "host_tokens": "host"}
Found = dict[tuple[Metric, str], list[str]]
"""Expressions by metric and tier, one per engine."""


def table_rules(engines: Iterable[Engine], scope: Scope) -> Iterator[DirectRule]:
    """Rules in the catalogue's order; those for fill levels read the capacities recorded before."""
    found: Found = defaultdict(list)
    for engine in engines:
        for rule in engine.rules:
            if rule.metric.kind != "histogram" and rule.metric not in _FILL:
                found[rule.metric, rule.tier].append(_value(engine, rule, scope))
        for key, expression in _fill(engine, scope):
            found[key].append(expression)
        for rule in engine.rules:
            if rule.metric.kind == "histogram":
                found[rule.metric, rule.tier]  # its place; the parts are rules of their own
    order = {metric: place for place, metric in enumerate(c.CATALOGUE)}
    for (metric, tier), expressions in sorted(found.items(), key=lambda item: order[item[0][0]]):
        if metric.kind == "histogram":
            yield from _histogram(metric, engines, scope)
        else:
            yield DirectRule(metric.name, first_of(*expressions), _tier(metric, tier))


def _tier(metric: Metric, tier: str) -> tuple[tuple[str, str], ...]:
    return ((metric.labels[4], tier),) if tier else ()


def _reader(engine: Engine, metric: Metric, scope: Scope) -> Reader:
    return Reader(engine, scope, rank=metric.labels[3])


def _value(engine: Engine, rule: Rule, scope: Scope) -> str:
    return _reader(engine, rule.metric, scope).first(rule.sources, rule.metric.kind, rule.combine)


def _histogram(metric: Metric, engines: Iterable[Engine], scope: Scope) -> Iterator[DirectRule]:
    rules = [(engine, rule) for engine in engines for rule in engine.rules if rule.metric is metric]
    for part in HISTOGRAM_PARTS:
        more = ("le",) if part == "_bucket" else ()
        values = (
            _reader(engine, metric, scope).value(source, "histogram", "sum", part, *more)
            for engine, rule in rules
            for source in rule.sources
        )
        yield DirectRule(metric.name + part, first_of(*values))


def _fill(engine: Engine, scope: Scope) -> Iterator[tuple[tuple[Metric, str], str]]:
    """Derives the third of usage, capacity and used tokens from the other two."""
    reader = Reader(engine, scope)
    known = {
        (rule.metric, rule.tier): _value(engine, rule, scope) for rule in engine.rules if rule.metric in _FILL
    }
    gauges = {_CAPACITIES.get(fact.name): fact.family for fact in engine.facts if not fact.labels}
    for tier in sorted({tier for _, tier in known}):
        capacity = ""
        if family := gauges.get(tier):
            yield (c.CAPACITY_TOKENS, tier), f"{reader.value(Source(family), 'gauge', 'max')} > 0"
            recorded = made(c.CAPACITY_TOKENS.name, f'tier="{tier}"')
            capacity = f"{on(reader.key)} {recorded}"
        used, usage = known.get((c.USED_TOKENS, tier)), known.get((c.USAGE_RATIO, tier))
        from_usage = f"({usage})\n* {capacity}" if usage and capacity else ""
        from_used = f"clamp_max(({used})\n/ {capacity}, 1)" if used and capacity else ""
        for metric, choices in ((c.USED_TOKENS, (used, from_usage)), (c.USAGE_RATIO, (usage, from_used))):
            if stated := [choice for choice in choices if choice]:
                yield (metric, tier), first_of(*stated)
