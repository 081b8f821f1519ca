"""The boards, in the order of use on call; to add one, write a module and list it here."""

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
