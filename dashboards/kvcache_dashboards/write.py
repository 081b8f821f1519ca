"""Boards as the JSON texts that Grafana imports."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from kvcache_dashboards.boards import BOARDS
from kvcache_dashboards.mappers import assemble
from kvcache_dashboards.options import read_options

GENERATED = Path(__file__).parents[1] / "generated"


def files(overrides: Mapping[str, str]) -> dict[str, str]:
    """Texts by file name; ValueError for a setting that does not exist or a value it cannot have."""
    options = read_options(overrides)
    boards = [make(options) for make in BOARDS]
    return {f"{board.uid}.json": text(assemble(board, options)) for board in boards}


def text(board: Dashboard) -> str:
    """Stable, so that a change shows as what it is."""
    document = json.loads(JSONEncoder().encode(board))
    return json.dumps(_as_grafana_writes(document), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _as_grafana_writes(document: dict[str, Any]) -> dict[str, Any]:
    """Without what the SDK adds beyond Grafana's own schema, and with links where they can be seen."""
    for variable in document["templating"]["list"]:
        for key in ("auto", "auto_count", "auto_min"):
            variable.pop(key, None)
    for link in document["links"]:
        link.pop("placement", None)
    for panel in document["panels"]:
        if "repeat" not in panel:
            panel.pop("repeatDirection", None)
    return document
