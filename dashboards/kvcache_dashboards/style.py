"""The house style: how a time series, a number, a distribution and a table look on every board."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as shared
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

NO_TRAFFIC = "No traffic"
NO_ENGINES = "No engines"
NO_LOG = "No request log"
NO_EVENTS = "No KV events configured"
DATASOURCE = shared.DataSourceRef(type_val="prometheus", uid="${datasource}")

RATIO, SECONDS, DURATION, TOKENS, COUNT = "percentunit", "s", "dtdurations", "short", "short"
TOKENS_PER_SECOND, BLOCKS_PER_SECOND, REQUESTS_PER_SECOND = "tokens/s", "blocks/s", "reqps"
PER_SECOND, BYTES, MOMENT, YES_NO = "cps", "bytes", "dateTimeAsIso", "bool_yes_no"

GOOD, WARN, BAD, NEUTRAL, FAINT = "green", "orange", "red", "blue", "gray"
OUTCOMES = {"full": GOOD, "partial": WARN, "miss": BAD, "uncacheable": "purple", "unknown": FAINT}
TIERS = {"device": "blue", "host": "purple", "disk": "orange", "remote": FAINT}
PHASES = {"cold": "light-blue", "warm": "orange"}
BASES = {"lookup": ("lookup: not comparable", BAD)}
"""The hit basis that counts a request more than once."""

Steps = Sequence[tuple[float | None, str]]
"""Lower bounds and colours of thresholds; None begins the lowest."""
PLAIN: Steps = ((None, NEUTRAL),)
HIT_STEPS: Steps = ((None, BAD), (0.2, WARN), (0.5, GOOD))
_REF_IDS = "ABCDEFGH"
P = TypeVar("P", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel)


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel; `legend` is Grafana's template or a fixed text."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers in a table, from one query."""

    title: str
    expr: str
    unit: str
    steps: Steps = PLAIN


def _base(panel: P, title: str, description: str, unit: str, no_value: str) -> P:
    return panel.title(title).description(description).datasource(DATASOURCE).unit(unit).no_value(no_value)


def _query(ref_id: str, query: Query) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery().datasource(DATASOURCE).ref_id(ref_id).expr(query.expr)
        .legend_format(query.legend or "__auto")
    )  # fmt: skip


def _targets(panel: P, queries: Sequence[Query]) -> P:
    for ref_id, query in zip(_REF_IDS, queries, strict=False):
        panel.with_target(_query(ref_id, query).range())
    return panel


def thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    made = [model.Threshold(value=value, color=color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def timeseries_panel(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    colors: Mapping[str, str] | None = None,
    no_value: str = NO_TRAFFIC,
) -> timeseries.Panel:
    """`colors` fixes the colours of series by their names."""
    panel = _base(timeseries.Panel(), title, description, unit, no_value).min(0)
    panel.line_width(1).fill_opacity(8).show_points(shared.VisibilityMode.NEVER).span_nulls(False)
    panel.tooltip(
        common.VizTooltipOptions().mode(shared.TooltipDisplayMode.MULTI).sort(shared.SortOrder.DESCENDING)
    )
    panel.legend(_legend(shared.LegendPlacement.BOTTOM))
    for name, color in (colors or {}).items():
        panel.override_by_name(name, [_value("color", {"mode": "fixed", "fixedColor": color})])
    return _targets(panel, queries)


def on_right_axis(panel: timeseries.Panel, pattern: str, unit: str, label: str) -> timeseries.Panel:
    """Draw the series whose names match as a dashed line against an axis of their own."""
    return panel.override_by_regexp(
        pattern,
        [
            _value("unit", unit),
            _value("custom.axisPlacement", "right"),
            _value("custom.axisLabel", label),
            _value("custom.lineStyle", {"fill": "dash", "dash": [6, 4]}),
            _value("custom.fillOpacity", 0),
        ],
    )


def legend_right(panel: timeseries.Panel) -> timeseries.Panel:
    """For panels too low for a legend below."""
    return panel.legend(_legend(shared.LegendPlacement.RIGHT))


def _legend(placement: shared.LegendPlacement) -> common.VizLegendOptions:
    return (
        common.VizLegendOptions().show_legend(True).display_mode(shared.LegendDisplayMode.LIST)
        .placement(placement).calcs([])
    )  # fmt: skip


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    return panel.stacking(common.StackingConfig().mode(shared.StackingMode.NORMAL).group("A")).fill_opacity(
        60
    )


def with_line(panel: timeseries.Panel, value: float) -> timeseries.Panel:
    """Mark a limit, such as an objective."""
    panel.thresholds(thresholds(((None, "transparent"), (value, BAD))))
    return panel.thresholds_style(
        common.GraphThresholdsStyleConfig().mode(shared.GraphThresholdsStyleMode.DASHED)
    )


def stat_panel(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    steps: Steps = PLAIN,
    no_value: str = NO_TRAFFIC,
    sparkline: bool = True,
) -> stat.Panel:
    panel = _base(stat.Panel(), title, description, unit, no_value).thresholds(thresholds(steps))
    panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    graph = shared.BigValueGraphMode.AREA if sparkline else shared.BigValueGraphMode.NONE
    panel.graph_mode(graph).color_mode(shared.BigValueColorMode.VALUE)
    return _targets(panel, queries)


def with_names(panel: stat.Panel) -> stat.Panel:
    """Show each series' name even if there is only one."""
    return panel.text_mode(shared.BigValueTextMode.VALUE_AND_NAME)


def heatmap_panel(
    title: str, description: str, unit: str, buckets: str, *, no_value: str = NO_TRAFFIC
) -> heatmap.Panel:
    """`unit` is that of what is distributed; cells count observations."""
    panel = _base(heatmap.Panel(), title, description, unit, no_value).calculate(False)
    panel.y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(shared.AxisPlacement.LEFT).reverse(False))
    panel.color(
        heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").exponent(0.5).steps(64)
    )
    panel.cell_values(heatmap.CellValues().unit(COUNT)).rows_frame(
        heatmap.RowsHeatmapOptions().layout(shared.HeatmapCellLayout.AUTO)
    )
    tooltip = heatmap.HeatmapTooltip().mode(shared.TooltipDisplayMode.SINGLE).y_histogram(True)
    panel.tooltip(tooltip).hide_from(_shown())
    query = _query("A", Query(buckets, "{{le}}")).format(PromQueryFormat.HEATMAP).range()
    return panel.with_target(query)


def table_panel(
    title: str,
    description: str,
    keys: Mapping[str, str],
    columns: Sequence[Column],
    *,
    worst: str,
    ascending: bool,
    no_value: str = NO_TRAFFIC,
    hidden: Sequence[str] = (),
    link: str = "",
) -> table.Panel:
    """One row for each set of `keys` (label: title), sorted by `worst`; `link` is on the first."""
    panel = _base(table.Panel(), title, description, columns[0].unit, no_value).show_header(True)
    for ref_id, column in zip(_REF_IDS, columns, strict=False):
        query = _query(ref_id, Query(column.expr)).format(PromQueryFormat.TABLE)
        panel.with_target(query.instant())
        panel.override_by_name(column.title, _column_style(column))
    if link:
        title_of_key = next(iter(keys.values()))
        panel.override_by_name(title_of_key, [_value("links", [{"title": "Open this one", "url": link}])])
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(id_val="organize", options=_organized(keys, columns, hidden))
    )
    return panel.sort_by([common.TableSortByFieldState().display_name(worst).desc(not ascending)])


def marked(panel: table.Panel, column: str, texts: Mapping[str, tuple[str, str]]) -> table.Panel:
    """Show values of a column under another text and in a colour: value -> (text, colour)."""
    options = {
        value: {"text": text, "color": color, "index": place}
        for place, (value, (text, color)) in enumerate(texts.items())
    }
    mapping = _value("mappings", [{"type": "value", "options": options}])
    return panel.override_by_name(column, [mapping, _value("custom.cellOptions", {"type": "color-text"})])


def _organized(
    keys: Mapping[str, str], columns: Sequence[Column], hidden: Sequence[str]
) -> dict[str, object]:
    values = {
        f"Value #{ref_id}" if len(columns) > 1 else "Value": column.title
        for ref_id, column in zip(_REF_IDS, columns, strict=False)
    }
    names = {**keys, **values}
    return {
        "excludeByName": dict.fromkeys(["Time", *hidden], True),
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": names,
    }


def _column_style(column: Column) -> list[model.DynamicConfigValue]:
    steps = [{"value": value, "color": color} for value, color in column.steps]
    values = [_value("unit", column.unit)]
    if column.steps is not PLAIN:
        values += [
            _value("thresholds", {"mode": "absolute", "steps": steps}),
            _value("color", {"mode": "thresholds"}),
            _value("custom.cellOptions", {"type": "color-text"}),
        ]
    return values


def _shown() -> common.HideSeriesConfig:
    return common.HideSeriesConfig().legend(False).tooltip(False).viz(False)


def _value(id_val: str, value: Any) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=id_val, value=value)
