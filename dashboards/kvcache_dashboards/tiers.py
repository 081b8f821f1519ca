"""Transfers between the tiers of a cache, and failed loads."""

from grafana_foundation_sdk.builders import timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import TARGET_MODEL
from kvcache_dashboards import style as s
from kvcache_dashboards.queries import Scope, total
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c


def traffic(q: Scope) -> timeseries.Panel:
    stored = total(q.recorded(r.TARGET_MODEL_STORED_TOKENS_RATE, TARGET_MODEL), ("tier",))
    panel = s.timeseries_panel(
        "Traffic between tiers",
        "Tokens copied down into a tier and loaded back up from it, on the right in bytes where the engine "
        "counts those (vLLM's connectors, TensorRT-LLM). Much down and nothing up: the slower tier costs and "
        "does not help.",
        s.TOKENS_PER_SECOND,
        Query(stored, "into {{tier}}"),
        Query(q.rate(c.LOADED_TOKENS, ("tier",)), "from {{tier}}"),
        Query(q.rate(c.STORED_BYTES, ("tier",)), "into {{tier}}, bytes"),
        Query(q.rate(c.LOADED_BYTES, ("tier",)), "from {{tier}}, bytes"),
        no_value="No second tier",
    )
    return s.on_right_axis(panel, ".*bytes", s.BYTES_PER_SECOND, "bytes")


def failed_loads(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Loads that failed or came too late",
        "Loads from a tier that failed (vLLM's NIXL: the request fails or is computed again, as "
        "kv_load_failure_policy says), and on the right tokens that a tier held and did not deliver in time "
        "(SGLang's storage).",
        s.PER_SECOND,
        Query(q.rate(c.LOAD_FAILURES, ("model_name", "tier")), "{{model_name}} {{tier}} failed"),
        Query(
            q.rate(c.UNDELIVERED_TOKENS, ("model_name", "tier")), "{{model_name}} {{tier}} tokens too late"
        ),
        no_value="No engine counts failed loads",
    )
    return s.on_right_axis(panel, ".*too late", s.TOKENS_PER_SECOND, "tokens")
