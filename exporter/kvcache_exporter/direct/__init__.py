"""Compiles the engine tables into recording rules that produce the exporter's series inside Prometheus."""

import re
from collections.abc import Iterable, Mapping

from kvcache_exporter.direct.pages import page_rules
from kvcache_exporter.direct.promql import DirectRule, Scope
from kvcache_exporter.direct.requests import derived_rules
from kvcache_exporter.direct.tables import table_rules
from kvcache_exporter.direct.targets import target_rules
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.engines.base import Engine


def direct_rules(values: Mapping[str, str]) -> list[dict[str, object]]:
    """The rules in Prometheus' form; `values` has the settings by name.

    Raises ValueError for an engine without a table, an empty target_label, or a label that may not be kept.
    """
    names = {setting: re.findall(r"[\w-]+", values[setting]) for setting in ("keep_labels", "target_label")}
    if not names["target_label"]:
        raise ValueError("target_label: name at least one label of the scrape, such as instance")
    if "job" in names["keep_labels"]:
        raise ValueError("keep_labels: job tells scraped series from recorded ones; keep another label")
    scope = Scope(tuple(names["target_label"]), tuple(names["keep_labels"]), values["engine_selector"])
    return [_as_rule(rule) for rule in compiled(chosen(values["engines"]), scope)]


def chosen(text: str) -> tuple[Engine, ...]:
    """The engines that a list of names selects, all if it is empty; in the order of ENGINES."""
    asked = set(re.findall(r"[\w-]+", text))
    known = {engine.name for engine in ENGINES}
    if unknown := asked - known:
        raise ValueError(
            f"engines: no table for {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
        )
    return tuple(engine for engine in ENGINES if not asked or engine.name in asked)


def compiled(engines: tuple[Engine, ...], scope: Scope) -> list[DirectRule]:
    """All rules; each comes after the rules that it reads."""
    rules: Iterable[DirectRule] = (
        *page_rules(engines, scope),
        *target_rules(engines, scope),
        *table_rules(engines, scope),
        *derived_rules(engines, scope),
    )
    return [rule for rule in rules if rule.expr]


def _as_rule(rule: DirectRule) -> dict[str, object]:
    labels: dict[str, object] = {"labels": dict(rule.labels)} if rule.labels else {}
    return {"record": rule.record, "expr": rule.expr, **labels}
