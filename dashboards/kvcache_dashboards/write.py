"""Writes boards as the JSON that Grafana imports."""

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
    """Texts by file name; raises ValueError for an unknown setting or an invalid value."""
    options = read_options(overrides)
    boards = [make(options) for make in BOARDS]
    return {f"{board.uid}.json": text(assemble(board, options)) for board in boards}


def text(board: Dashboard) -> str:
    """Stable JSON, so that diffs show only real changes."""
    document = json.loads(JSONEncoder().encode(board))
    return json.dumps(_as_grafana_writes(document), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _as_grafana_writes(document: dict[str, Any]) -> dict[str, Any]:
    """Removes what the SDK adds beyond Grafana's schema, and makes links visible."""
    for variable in document["templating"]["list"]:
        for key in ("auto", "auto_count", "auto_min"):
            variable.pop(key, None)
    for link in document["links"]:
        link.pop("placement", None)
    for panel in document["panels"]:
        if "repeat" not in panel:
            panel.pop("repeatDirection", None)
    return document
