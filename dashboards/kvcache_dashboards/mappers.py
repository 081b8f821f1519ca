"""The parts that are the same for every board: ids, layout, uid, tags, links, variables, annotations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from kvcache_dashboards import variables
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope

COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Placed:
    """A panel and its size in grid units."""

    panel: Builder[model.Panel]
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Row:
    """Panels in reading order under a title."""

    title: str
    panels: Sequence[Placed]


@dataclass(frozen=True, slots=True)
class Board:
    """The content of one board."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    annotations: Sequence[dashboard.AnnotationQuery] = ()
    """In addition to those that every board has."""


def assemble(board: Board, options: Options) -> model.Dashboard:
    builder = (
        dashboard.Dashboard(options.title_prefix + board.title)
        .uid(board.uid).description(board.description).tags(list(options.tags))
        .timezone(options.timezone).refresh(options.refresh).time(options.time_from, "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR).editable()
        .with_variable(variables.datasource(options))
        .link(_other_boards(options))
    )  # fmt: skip
    for variable in variables.query_variables(options):
        builder.with_variable(variable)
    for annotation in (*variables.annotations(Scope(options.cluster_label)), *board.annotations):
        builder.annotation(annotation)
    made = builder.build()
    made.panels = list(_laid_out(board.rows))
    made.schema_version = options.schema_version
    return made


def _other_boards(options: Options) -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("KV cache boards").type(model.DashboardLinkType.DASHBOARDS)
        .tags(list(options.tags)).as_dropdown(True).keep_time(True).include_vars(True)
        .icon("external link").tooltip("The other boards, with the same time and variables")
    )  # fmt: skip


def _laid_out(rows: Sequence[Row]) -> Iterator[model.Panel | model.RowPanel]:
    """Places panels from left to right, then down, without overlaps."""
    top, number = 0, 0
    for row in rows:
        number += 1
        yield _row(row.title, number, top)
        x, y, lowest = 0, top + 1, top + 1
        for placed in row.panels:
            if x + placed.width > COLUMNS:
                x, y = 0, lowest
            number += 1
            yield _panel(placed, number, x, y)
            x, lowest = x + placed.width, max(lowest, y + placed.height)
        top = lowest


def _row(title: str, number: int, top: int) -> model.RowPanel:
    made = dashboard.Row(title).collapsed(False).build()
    made.id_val = number
    made.grid_pos = model.GridPos(h=1, w=COLUMNS, x=0, y=top)
    return made


def _panel(placed: Placed, number: int, x: int, y: int) -> model.Panel:
    made = placed.panel.build()
    made.id_val = number
    made.grid_pos = model.GridPos(h=placed.height, w=placed.width, x=x, y=y)
    return made
