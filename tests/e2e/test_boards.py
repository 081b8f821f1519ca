"""Every query of every board returns data from a real Prometheus that the demo recording has filled."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from processes import query
from stage import played

from kvcache_dashboards.write import files as board_files

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SPEED = 7.0
_NO_EVENTS = "no KV events are recorded"
_NO_TIERS = "the recorded engines have one tier"
_NO_PRICES = "the demo has no price table"
_NO_ROUTERS = "no router is recorded"
_NO_DIAGNOSES = "neither engine says why a prefix was missed"
_ALL_WELL = "nothing of this kind happens in the recording"
# Metrics and fragments of expressions that the recording cannot show, with the reason.
UNSEEN = {
    "kvcache_events_total": _NO_EVENTS,
    "kvcache_events_lost_total": _NO_EVENTS,
    "kvcache_resident_blocks": _NO_EVENTS,
    "kvcache_tracked_blocks_ratio": _NO_EVENTS,
    "kvcache_rewarm_delay_seconds_bucket": _NO_EVENTS,
    "target_model:kvcache_evicted_blocks:rate5m": _NO_EVENTS,
    "target_model:kvcache_stored_blocks:rate5m": _NO_EVENTS,
    "target_model:kvcache_rewarmed_blocks:rate5m": _NO_EVENTS,
    "target_model:kvcache_stored_tokens:rate5m": _NO_TIERS,
    "kvcache_loaded_tokens_total": _NO_TIERS,
    "kvcache_request_cost_usd_total": _NO_PRICES,
    "kvcache_requests_unpriced_total": _NO_PRICES,
    "kvcache_price_table_timestamp_seconds": _NO_PRICES,
    "kvcache_request_errors_total": _ALL_WELL,
    "kvcache_request_diagnosed_misses_total": _NO_DIAGNOSES,
    "kvcache_request_diagnosed_missed_tokens_total": _NO_DIAGNOSES,
    "model:kvcache_router_predicted_hit:ratio_rate5m": _NO_ROUTERS,
    "model:kvcache_router_delivered_hit:ratio_rate5m": _NO_ROUTERS,
    "model:kvcache_router_requests:rate5m": _NO_ROUTERS,
    "kvcache_stored_bytes_total": _NO_TIERS,
    "kvcache_loaded_bytes_total": _NO_TIERS,
    "kvcache_load_failures_total": _NO_TIERS,
    "kvcache_undelivered_tokens_total": _NO_TIERS,
    "kvcache_exporter_dropped_series_total": _ALL_WELL,
    'kvcache_target_info{hit_basis="lookup"}': "both recorded engines count prompt tokens",
}
# Panels that need more time than the recording has, with the reason.
TOO_SHORT = {
    ("Cold p99 by warm p99", "A"): "the first warm requests come in one scrape: a rate needs two",
}


class Asked(NamedTuple):
    """One query of one panel."""

    board: str
    panel: str
    ref_id: str
    expr: str


def asked() -> Iterator[Asked]:
    for name, text in board_files({}).items():
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", []):
                expr = target["expr"].replace("$__rate_interval", "15s").replace("$__range", "60s")
                yield Asked(name, panel["title"], target["refId"], re.sub(r"\$\w+", ".*", expr))


def has_data(url: str, expr: str, begin: float, end: float) -> bool:
    parameters: dict[str, str] = {"query": expr, "start": str(begin), "end": str(end), "step": "1"}
    reply = requests.post(f"{url}/api/v1/query_range", data=parameters, timeout=20)
    answer: dict[str, Any] = json.loads(reply.text)
    assert answer["status"] == "success", (expr, answer)
    return any(value != "NaN" for series in answer["data"]["result"] for _, value in series["values"])


def _excuse(one: Asked) -> str:
    bare = re.sub(r'\w+=~"\.\*"(, )?', "", one.expr)
    unseen = next((reason for fragment, reason in UNSEEN.items() if fragment in bare), "")
    return unseen or TOO_SHORT.get((one.panel, one.ref_id), "")


def test_every_query_of_every_board_has_data(tmp_path: Path) -> None:
    """A query that stays empty fails, unless UNSEEN or TOO_SHORT say why the recording cannot show it."""
    with played(tmp_path, SPEED) as (url, (begin, end)):
        empty = [one for one in asked() if not has_data(url, one.expr, begin, end)]
        for one in empty:
            print(f"{one.board}: {one.panel} {one.ref_id}: {_excuse(one) or 'EMPTY'}")
        unexpected = [one for one in empty if not _excuse(one)]
        shown = [name for name in UNSEEN if query(url, f"last_over_time({_whole(name)}[5m])")]
    assert not unexpected
    assert not shown, "these have data now: take them off the list"


def _whole(fragment: str) -> str:
    return fragment if fragment.endswith("}") else f'{{__name__="{fragment}"}}'
