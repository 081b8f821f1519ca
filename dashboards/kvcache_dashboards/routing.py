"""Routers: predicted against delivered hit rates, and the distribution of requests."""

from grafana_foundation_sdk.builders import timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import MODEL
from kvcache_dashboards import style as s
from kvcache_dashboards.queries import Scope, ratio, top, total
from kvcache_dashboards.style import Query

_LINES = 10
_NO_ROUTERS = "No router is a target"


def predicted_and_delivered(q: Scope) -> timeseries.Panel:
    cached = total(q.recorded(r.MODEL_CACHED_PROMPT_TOKENS_RATE, MODEL), ("model_name",))
    prompts = total(q.recorded(r.MODEL_MEASURED_PROMPT_TOKENS_RATE, MODEL), ("model_name",))
    predicted = q.recorded(r.MODEL_ROUTER_PREDICTED_HIT_RATIO, MODEL)
    panel = s.timeseries_panel(
        "Hit rate that routers predicted and that was delivered",
        "Predicted: what a router's index expected in the chosen worker's cache, each request once. "
        "Delivered: by tokens, as engines told the router, and as engines count it themselves. Predicted far "
        "above delivered: the index holds what engines have evicted. Names of models may differ between "
        "routers and engines.",
        s.RATIO,
        Query(predicted, "{{model_name}} predicted {{index}}"),
        Query(q.recorded(r.MODEL_ROUTER_DELIVERED_HIT_RATIO, MODEL), "{{model_name}} delivered"),
        Query(ratio(cached, prompts), "{{model_name}} engines"),
        no_value=_NO_ROUTERS,
    )
    return s.dashed(panel.max(1), ".*predicted.*")


def requests_by_worker(q: Scope) -> timeseries.Panel:
    by_worker = total(q.recorded(r.MODEL_ROUTER_REQUESTS_RATE, MODEL), ("worker",))
    return s.timeseries_panel(
        "Requests by worker",
        f"Requests that routers sent to each worker, of the {_LINES} that got most.",
        s.REQUESTS_PER_SECOND,
        Query(top(_LINES, by_worker), "{{worker}}"),
        no_value=_NO_ROUTERS,
    )


def busiest_share(q: Scope) -> timeseries.Panel:
    by_worker = total(q.recorded(r.MODEL_ROUTER_REQUESTS_RATE, MODEL), ("model_name", "worker"))
    busiest = f"max by (model_name) ({by_worker})"
    return s.timeseries_panel(
        "Share of the busiest worker",
        "Affinity has a price: near 1 one worker gets nearly all requests of a model.",
        s.RATIO,
        Query(ratio(busiest, total(by_worker, ("model_name",))), "{{model_name}}"),
        no_value=_NO_ROUTERS,
    ).max(1)
