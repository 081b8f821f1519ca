"""The house style of time series, stat panels and heatmaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
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

RATIO, SECONDS, TOKENS, COUNT, TIMES = "percentunit", "s", "short", "short", "x"
SECONDS_PER_SECOND = "s/s"
TOKENS_PER_SECOND, BLOCKS_PER_SECOND, REQUESTS_PER_SECOND = "tokens/s", "blocks/s", "reqps"
DOLLARS = "currencyUSD"
PER_SECOND, BYTES, BYTES_PER_SECOND = "cps", "bytes", "Bps"
MOMENT, YES_NO = "dateTimeAsIso", "bool_yes_no"

GOOD, WARN, BAD, NEUTRAL, FAINT = "green", "orange", "red", "blue", "gray"
OUTCOMES = {"full": GOOD, "partial": WARN, "miss": BAD, "uncacheable": "purple", "unknown": FAINT}
TIERS = {"device": "blue", "host": "purple", "disk": "orange", "remote": FAINT}
PHASES = {"cold": "light-blue", "warm": "orange"}
BASES = {"lookup": ("lookup: not comparable", BAD)}
"""The hit basis that may count a request more than once."""

Steps = Sequence[tuple[float | None, str]]
"""Lower bounds and colours of thresholds; None is the lowest."""
PLAIN: Steps = ((None, NEUTRAL),)
HIT_STEPS: Steps = ((None, BAD), (0.2, WARN), (0.5, GOOD))
REF_IDS = ascii_uppercase
P = TypeVar("P", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel)


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel; `legend` is Grafana's template or a fixed text."""

    expr: str
    legend: str = ""


def common_parts(panel: P, title: str, description: str, unit: str, no_value: str) -> P:
    return panel.title(title).description(description).datasource(DATASOURCE).unit(unit).no_value(no_value)


def query_target(ref_id: str, query: Query) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery().datasource(DATASOURCE).ref_id(ref_id).expr(query.expr)
        .legend_format(query.legend or "__auto")
    )  # fmt: skip


def _targets(panel: P, queries: Sequence[Query]) -> P:
    for ref_id, query in zip(REF_IDS, queries, strict=False):
        panel.with_target(query_target(ref_id, query).range())
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
    signed: bool = False,
) -> timeseries.Panel:
    """`colors` fixes the colours of series by their names; the axis of `signed` values may go below 0."""
    panel = common_parts(timeseries.Panel(), title, description, unit, no_value)
    if not signed:
        panel.min(0)
    panel.line_width(1).fill_opacity(8).show_points(shared.VisibilityMode.NEVER).span_nulls(False)
    panel.tooltip(
        common.VizTooltipOptions().mode(shared.TooltipDisplayMode.MULTI).sort(shared.SortOrder.DESCENDING)
    )
    panel.legend(_legend(shared.LegendPlacement.BOTTOM))
    for name, color in (colors or {}).items():
        panel.override_by_name(name, [setting("color", {"mode": "fixed", "fixedColor": color})])
    return _targets(panel, queries)


def on_right_axis(panel: timeseries.Panel, pattern: str, unit: str, label: str) -> timeseries.Panel:
    """Draw the matching series as a dashed line against a second axis."""
    return panel.override_by_regexp(
        pattern,
        [
            setting("unit", unit),
            setting("custom.axisPlacement", "right"),
            setting("custom.axisLabel", label),
            _DASHES,
            setting("custom.fillOpacity", 0),
        ],
    )


def dashed(panel: timeseries.Panel, pattern: str) -> timeseries.Panel:
    """Draw the matching series dashed."""
    return panel.override_by_regexp(pattern, [_DASHES])


def legend_right(panel: timeseries.Panel) -> timeseries.Panel:
    """Put the legend on the right, for panels too low for one below."""
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


def over_decades(panel: timeseries.Panel) -> timeseries.Panel:
    """Use a logarithmic axis: on a linear one, latencies of hits beside those of misses would lie on zero."""
    scale = common.ScaleDistributionConfig().type(shared.ScaleDistribution.LOG).log(10)
    # Without a zero on the axis, a filled area would be meaningless.
    return panel.scale_distribution(scale).fill_opacity(0)


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
    panel = common_parts(stat.Panel(), title, description, unit, no_value).thresholds(thresholds(steps))
    panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    if unit == COUNT:
        # Prometheus extrapolates increases: 2.02 restarts are two.
        panel.decimals(0)
    graph = shared.BigValueGraphMode.AREA if sparkline else shared.BigValueGraphMode.NONE
    panel.graph_mode(graph).color_mode(shared.BigValueColorMode.VALUE)
    return _targets(panel, queries)


def with_names(panel: stat.Panel) -> stat.Panel:
    """Show each series' name even if there is only one."""
    return panel.text_mode(shared.BigValueTextMode.VALUE_AND_NAME)


def heatmap_panel(
    title: str, description: str, unit: str, buckets: str, *, no_value: str = NO_TRAFFIC
) -> heatmap.Panel:
    """`unit` is that of the observed values; cells count observations."""
    panel = common_parts(heatmap.Panel(), title, description, unit, no_value).calculate(False)
    panel.y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(shared.AxisPlacement.LEFT).reverse(False))
    panel.color(
        heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").exponent(0.5).steps(64)
    )
    panel.cell_values(heatmap.CellValues().unit(COUNT)).rows_frame(
        heatmap.RowsHeatmapOptions().layout(shared.HeatmapCellLayout.AUTO)
    )
    tooltip = heatmap.HeatmapTooltip().mode(shared.TooltipDisplayMode.SINGLE).y_histogram(True)
    panel.tooltip(tooltip).hide_from(_shown())
    query = query_target("A", Query(buckets, "{{le}}")).format(PromQueryFormat.HEATMAP).range()
    return panel.with_target(query)


def _shown() -> common.HideSeriesConfig:
    return common.HideSeriesConfig().legend(False).tooltip(False).viz(False)


def setting(id_val: str, value: Any) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=id_val, value=value)


_DASHES = setting("custom.lineStyle", {"fill": "dash", "dash": [6, 4]})
