"""Compiles the engine tables into recording rules that make the exporter's series inside Prometheus."""

from kvcache_exporter.direct.pages import page_rules
from kvcache_exporter.direct.promql import DirectRule, Scope
from kvcache_exporter.direct.requests import derived_rules
from kvcache_exporter.direct.tables import table_rules
from kvcache_exporter.direct.targets import target_rules
from kvcache_exporter.engines.base import Engine


def direct_rules(engines: tuple[Engine, ...], scope: Scope) -> list[DirectRule]:
    """All rules, each after those that it reads."""
    return [
        *page_rules(engines, scope),
        *target_rules(engines, scope),
        *table_rules(engines, scope),
        *derived_rules(engines, scope),
    ]
