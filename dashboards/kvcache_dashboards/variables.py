"""The variables and annotations of every board."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.models.dashboard import VariableOption, VariableRefresh, VariableSort

from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import INTERVAL, Scope, total
from kvcache_dashboards.style import DATASOURCE
from kvcache_exporter import catalogue as c

ANYTHING = ".*"
"""The value of All for a label that may be absent."""


def datasource(options: Options) -> dashboard.DatasourceVariable:
    variable = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    if options.datasource:
        chosen = VariableOption(selected=True, text=options.datasource, value=options.datasource)
        variable.current(chosen)
    return variable


def _labels(name: str, label: str, selector: str, label_name: str = "") -> dashboard.QueryVariable:
    query = f"label_values({selector}, {label_name or name})"
    return (
        dashboard.QueryVariable(name).label(label).datasource(DATASOURCE)
        .query({"query": query, "refId": f"variable-{name}"}).definition(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True).include_all(True).current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )  # fmt: skip


def query_variables(options: Options) -> Iterator[dashboard.QueryVariable]:
    """Each variable filters the next; `engine` filters targets, since most series only have `target`."""
    scope, cluster = Scope(options.cluster_label, ()), options.cluster_label
    # Some users have only engines and some have only logs: names come from both.
    if cluster:
        every = Scope("").any_of(c.TARGET_UP, c.LOG_LINES)
        yield _labels("cluster", "Cluster", every, cluster).all_value(ANYTHING)
    yield _labels("namespace", "Namespace", scope.series(c.RUNNING_REQUESTS)).all_value(ANYTHING)
    yield _labels("engine", "Engine", scope.series(c.TARGET_UP)).all_value(ANYTHING)
    yield _labels("model_name", "Model", scope.any_of(c.PROMPT_TOKENS, c.REQUESTS)).all_value(ANYTHING)
    # Not from target_info: a target that never answered has none, but must be selectable.
    yield _labels("target", "Target", Scope(cluster, ("engine",)).series(c.TARGET_UP))


def annotations(scope: Scope) -> Iterator[dashboard.AnnotationQuery]:
    restarts = total(f"increase({scope.series(c.TARGET_RESTARTS)}[{INTERVAL}])", ("target",))
    yield _annotation("Engine restarts", f"{restarts} > 0", "Restart of {{target}}", "red")
    info = scope.series(c.TARGET_INFO)
    # The offset of two minutes skips the outage of a restart, which would hide what it changed.
    before = f"max_over_time({info}[15m] offset 2m)"
    changed = f"({info} unless {before}) and on (target) {before}"
    yield _annotation(
        "Engine changes",
        changed,
        "{{target}} is now {{engine}} {{engine_version}}, block size {{block_size}}, {{cache_dtype}}",
        "purple",
    )
    reloads = f"changes({scope.series(c.CONFIG_RELOAD_TIME)}[{INTERVAL}]) > 0"
    yield _annotation("Exporter reloads", reloads, "The exporter loaded its configuration", "blue")


def cache_resets(scope: Scope) -> dashboard.AnnotationQuery:
    emptied = total(f"increase({scope.series(c.CACHE_RESETS)}[{INTERVAL}])", ("target",))
    return _annotation("Cache resets", f"{emptied} > 0", "{{target}} emptied its cache", "orange")


def _annotation(name: str, expr: str, text: str, color: str) -> dashboard.AnnotationQuery:
    target = prometheus.Dataquery().datasource(DATASOURCE).ref_id("Anno").expr(expr).interval("1m")
    return (
        dashboard.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).hide(False)
        .icon_color(color).target(target).title_format(name).text_format(text)
    )  # fmt: skip
