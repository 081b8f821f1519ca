"""The boards, in the order a person on call goes through them; a new one is a module and a line here."""

from collections.abc import Callable

from kvcache_dashboards import cold_start, exporter, overview, pressure, requests
from kvcache_dashboards.mappers import Board
from kvcache_dashboards.options import Options

BOARDS: tuple[Callable[[Options], Board], ...] = (
    overview.board,
    pressure.board,
    cold_start.board,
    requests.board,
    exporter.board,
)
