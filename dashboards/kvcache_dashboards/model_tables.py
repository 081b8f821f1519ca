"""Tables of models and of prompt groups, worst first."""

from grafana_foundation_sdk.builders import table

from kvcache_alerts import recording as r
from kvcache_alerts.promql import MODEL
from kvcache_dashboards import links
from kvcache_dashboards import style as s
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope, among, or_zero, ratio, top, total
from kvcache_dashboards.tables import Column, table_panel
from kvcache_exporter import catalogue as c

_WORST = 20


def engine_models(q: Scope, options: Options) -> table.Panel:
    by = ("model_name",)

    def weighted(rate: str, measured: str) -> str:
        return ratio(total(rate, by), total(measured, by))

    tokens = weighted(
        q.recorded(r.MODEL_CACHED_PROMPT_TOKENS_RATE, MODEL),
        q.recorded(r.MODEL_MEASURED_PROMPT_TOKENS_RATE, MODEL),
    )
    requests = weighted(
        q.recorded(r.MODEL_ENGINE_HITS_RATE, MODEL), q.recorded(r.MODEL_ENGINE_REQUESTS_RATE, MODEL)
    )
    return table_panel(
        "Models, worst first",
        "Models by the hit rate of their engines over the last five minutes.",
        {"model_name": "Model"},
        (
            Column("By tokens", tokens, s.RATIO, s.HIT_STEPS),
            Column("By requests", requests, s.RATIO, s.HIT_STEPS),
            Column("Prompt", total(q.recorded(r.MODEL_PROMPT_TOKENS_RATE, MODEL), by), s.TOKENS_PER_SECOND),
        ),
        worst="By tokens",
        ascending=True,
        link=links.for_row("kvcache-pressure", "model_name", "Model", options.cluster_label),
    )


def log_models(q: Scope) -> table.Panel:
    by = ("provider", "model_name")
    prompt, cached = q.rise(c.REQUEST_PROMPT_TOKENS, by), q.rise(c.REQUEST_CACHED_TOKENS, by)
    known = q.rise(c.REQUESTS, by, outcome="!unknown")
    full = or_zero(q.rise(c.REQUESTS, by, outcome="full"), known)
    return table_panel(
        "Models, worst first",
        "Models and providers by their token-weighted hit rate in the time shown.",
        {"model_name": "Model", "provider": "Provider"},
        (
            Column("By tokens", ratio(cached, prompt), s.RATIO, s.HIT_STEPS),
            Column("By requests", ratio(full, known), s.RATIO, s.HIT_STEPS),
            Column("Requests", known, s.COUNT),
        ),
        worst="By tokens",
        ascending=True,
        no_value=s.NO_LOG,
    )


def prompt_groups(q: Scope) -> table.Panel:
    by = ("group", "model_name")
    prompt, cached = q.rise(c.REQUEST_PROMPT_TOKENS, by), q.rise(c.REQUEST_CACHED_TOKENS, by)
    worst = top(_WORST, f"{prompt} - {cached}")
    known = q.rise(c.REQUESTS, by, outcome="!unknown")
    full = or_zero(q.rise(c.REQUESTS, by, outcome="full"), known)
    return table_panel(
        "Prompt groups, worst first",
        f"The {_WORST} groups that had to compute most prompt tokens in the time shown. Groups come from "
        "requests.group_by in the configuration.",
        {"group": "Group", "model_name": "Model"},
        (
            Column("Computed", worst, s.TOKENS),
            Column("Requests", among(known, by, worst), s.COUNT),
            Column("By tokens", among(ratio(cached, prompt), by, worst), s.RATIO, s.HIT_STEPS),
            Column("By requests", among(ratio(full, known), by, worst), s.RATIO, s.HIT_STEPS),
        ),
        worst="Computed",
        ascending=False,
        no_value=s.NO_LOG,
    )
