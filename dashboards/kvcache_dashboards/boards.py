"""The boards, in the order a person on call goes through them; a new one is a module and a line here."""

from collections.abc import Callable

from kvcache_dashboards import overview
from kvcache_dashboards.mappers import Board
from kvcache_dashboards.options import Options

BOARDS: tuple[Callable[[Options], Board], ...] = (overview.board,)
