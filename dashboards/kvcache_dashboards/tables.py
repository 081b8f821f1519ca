"""The house style of tables: one row per set of labels, worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from kvcache_dashboards.style import (
    COUNT,
    MOMENT,
    NO_TRAFFIC,
    PLAIN,
    REF_IDS,
    Query,
    Steps,
    common_parts,
    query_target,
    setting,
)

_WORDS = "string"
_NOTHING = "none"
_NARROWEST = 80
_NUMBER_WIDTH, _MOMENT_WIDTH = 115, 170


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric column, from one query."""

    title: str
    expr: str
    unit: str
    steps: Steps = PLAIN


def table_panel(
    title: str,
    description: str,
    keys: Mapping[str, str],
    columns: Sequence[Column],
    *,
    worst: str,
    ascending: bool,
    no_value: str = NO_TRAFFIC,
    link: str = "",
) -> table.Panel:
    """One row for each set of `keys` (label: title), sorted by `worst`; `link` is on the first key."""
    # Units are set by column: with one unit for all, Grafana would parse words as dates or numbers.
    panel = common_parts(table.Panel(), title, description, _WORDS, no_value).min_width(_NARROWEST)
    for ref_id, column in zip(REF_IDS, columns, strict=False):
        query = query_target(ref_id, Query(column.expr)).format(PromQueryFormat.TABLE)
        panel.with_target(query.instant())
        panel.override_by_name(column.title, _column_style(column))
    for key in keys.values():
        panel.override_by_name(key, [setting("noValue", _NOTHING)])
    if link:
        title_of_key = next(iter(keys.values()))
        panel.override_by_name(title_of_key, [setting("links", [{"title": "Open this one", "url": link}])])
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(id_val="organize", options=_organized(keys, columns))
    )
    return panel.sort_by([common.TableSortByFieldState().display_name(worst).desc(not ascending)])


def marked(panel: table.Panel, column: str, texts: Mapping[str, tuple[str, str]]) -> table.Panel:
    """Show values of a column as a coloured text: value -> (text, colour)."""
    options = {
        value: {"text": text, "color": color, "index": place}
        for place, (value, (text, color)) in enumerate(texts.items())
    }
    mapping = setting("mappings", [{"type": "value", "options": options}])
    return panel.override_by_name(column, [mapping, setting("custom.cellOptions", {"type": "color-text"})])


def _organized(keys: Mapping[str, str], columns: Sequence[Column]) -> dict[str, object]:
    values = {
        f"Value #{ref_id}" if len(columns) > 1 else "Value": column.title
        for ref_id, column in zip(REF_IDS, columns, strict=False)
    }
    names = {**keys, **values}
    return {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": names,
    }


def _column_style(column: Column) -> list[model.DynamicConfigValue]:
    steps = [{"value": value, "color": color} for value, color in column.steps]
    width = _MOMENT_WIDTH if column.unit == MOMENT else _NUMBER_WIDTH
    values = [
        setting("unit", column.unit),
        setting("noValue", _NOTHING),
        setting("custom.width", width),
    ]
    if column.unit == COUNT:
        values.append(setting("decimals", 0))
    if column.steps is not PLAIN:
        values += [
            setting("thresholds", {"mode": "absolute", "steps": steps}),
            setting("color", {"mode": "thresholds"}),
            setting("custom.cellOptions", {"type": "color-text"}),
        ]
    return values
