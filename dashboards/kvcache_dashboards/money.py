"""Costs of prompts: tokens by kind, dollars by the price table, and prefill time of self-hosted engines."""

from grafana_foundation_sdk.builders import timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import MODEL, SOURCE_MODEL
from kvcache_dashboards import style as s
from kvcache_dashboards.mappers import Placed
from kvcache_dashboards.queries import Scope, ratio, total
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c

_NO_PRICES = "No price table configured"


def panels(q: Scope) -> tuple[Placed, ...]:
    """The panels in reading order: how many tokens, at what cost, and where."""
    made = (tokens_by_kind, written_tokens, read_per_written, cost, savings, prefill_saved, unpriced, rewarms)
    return tuple(Placed(panel(q), 8, 7) for panel in made)


def tokens_by_kind(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Tokens by kind",
        "Prompt tokens, those of them served from the cache (which managed APIs bill at a fraction), and "
        "tokens generated.",
        s.TOKENS_PER_SECOND,
        Query(total(q.recorded(r.SOURCE_MODEL_PROMPT_TOKENS_RATE, SOURCE_MODEL)), "prompt"),
        Query(total(q.recorded(r.SOURCE_MODEL_CACHED_TOKENS_RATE, SOURCE_MODEL)), "cached"),
        Query(q.rate(c.REQUEST_OUTPUT_TOKENS), "generated"),
        no_value=s.NO_LOG,
    )


def written_tokens(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Tokens written to a provider's cache",
        "Billed as cache writes, by the time they are kept.",
        s.TOKENS_PER_SECOND,
        Query(q.rate(c.REQUEST_WRITTEN_TOKENS, ("provider", "ttl")), "{{provider}} {{ttl}}"),
        no_value="No provider bills writes",
    )


def read_per_written(q: Scope) -> timeseries.Panel:
    by = ("provider", "model_name")
    read, written = (q.rise(m, by) for m in (c.REQUEST_CACHED_TOKENS, c.REQUEST_WRITTEN_TOKENS))
    panel = s.timeseries_panel(
        "Tokens read back for each token written",
        "Over the time shown. Below 0.25, writes are paid for and hardly ever read back: they cost more "
        "than they save.",
        s.TIMES,
        Query(ratio(read, written), "{{provider}} {{model_name}}"),
        no_value="No provider bills writes",
    )
    return s.with_line(panel, 1)


def cost(q: Scope) -> timeseries.Panel:
    by = ("provider", "model_name")
    return s.timeseries_panel(
        "Cost an hour",
        "By the configured price table, cache reads and writes included. The exporter board shows the "
        "table's date.",
        s.DOLLARS,
        Query(f"3600 * {q.rate(c.REQUEST_COST, by)}", "{{provider}} {{model_name}}"),
        no_value=_NO_PRICES,
    )


def savings(q: Scope) -> timeseries.Panel:
    by = ("provider", "model_name")
    saved = f"{q.rate(c.REQUEST_COST_WITHOUT_CACHE, by)} - {q.rate(c.REQUEST_COST, by)}"
    panel = s.timeseries_panel(
        "Saved by the cache an hour",
        "What the same requests would have cost without a cache, less what they cost. Below zero, writes are "
        "paid for and not read back.",
        s.DOLLARS,
        Query(f"3600 * ({saved})", "{{provider}} {{model_name}}"),
        no_value=_NO_PRICES,
        signed=True,
    )
    return s.with_line(panel, 0)


def prefill_saved(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Prefill saved by self-hosted engines",
        "Seconds of prefill a second that the cache spared: cached tokens at the measured time of a computed "
        "one. 1 is one replica's worth of prefill; times the GPUs of a replica it is GPU-seconds.",
        s.SECONDS_PER_SECOND,
        Query(q.recorded(r.MODEL_PREFILL_SECONDS_SAVED_RATE, MODEL), "{{model_name}}"),
        no_value="No prefill time on the engines' pages",
    )


def unpriced(q: Scope) -> timeseries.Panel:
    by = ("provider", "model_name")
    return s.timeseries_panel(
        "Requests without a price",
        "In no cost and no saving: the price table lacks the model, or the log does not say what was billed.",
        s.REQUESTS_PER_SECOND,
        Query(q.rate(c.REQUESTS_UNPRICED, by), "{{provider}} {{model_name}}"),
        no_value=_NO_PRICES,
    )


def rewarms(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Shared prefixes lost (estimate)",
        "Times the cached prefix of a group fell below its established floor. Requests of another kind in "
        "the same group look the same; the Pressure board has the exact count from KV events.",
        s.PER_SECOND,
        Query(q.rate(c.REQUEST_REWARMS, ("source", "group")), "{{source}} {{group}}"),
        no_value=s.NO_LOG,
    )
