"""Requests by outcome, from logs: hit rates, TTFT by outcome, prompt groups, costs."""

from grafana_foundation_sdk.builders import heatmap, stat, timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import LOG_MODEL, SOURCE_MODEL, TARGET_MODEL
from kvcache_dashboards import model_tables, money
from kvcache_dashboards import style as s
from kvcache_dashboards.mappers import Board, Placed, Row
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope, or_zero, ratio, top, total
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c

UID = "kvcache-requests"
_LINES = 10


def board(options: Options) -> Board:
    q = Scope(options.cluster_label)
    objective = options.ttft_objective
    return Board(
        UID,
        "Requests",
        "What the prefix cache did for each request, from request logs of gateways, engines and managed "
        "APIs and from the vLLM plugin. Panels follow Cluster and Model; those that compare with engines "
        "also Namespace, Engine and Target.",
        (
            Row("What did the cache do for requests?", (
                Placed(requests_by_outcome(q), 8, 7),
                Placed(hit_rates(q), 8, 7),
                Placed(log_against_engines(q), 8, 7),
                Placed(unknown_share(q), 4, 6),
                Placed(hit_rate_by_source(q), 10, 6),
                Placed(uncached_tokens(q), 10, 6),
            )),
            Row("What does a miss cost in waiting?", (
                Placed(ttft(q, "0.5", "p50"), 8, 7),
                Placed(ttft(q, "0.95", "p95"), 8, 7),
                Placed(s.with_line(ttft(q, "0.99", "p99"), objective), 8, 7),
                Placed(slow_share(q, objective), 12, 7),
                Placed(duration(q), 12, 7),
            )),
            Row("How is it spread over requests?", (
                Placed(computed_tokens(q), 8, 8),
                Placed(cached_ratio(q), 8, 8),
                Placed(waiting_of_misses(q), 8, 8),
            )),
            Row("Whose prompts miss?", (
                Placed(model_tables.prompt_groups(q), 14, 10),
                Placed(model_tables.log_models(q), 10, 10),
                Placed(waiting_of_groups(q), 24, 8),
                Placed(diagnosed(q), 12, 7),
                Placed(diagnosed_tokens(q), 12, 7),
            )),
            Row("What is paid for?", (
                *money.panels(q),
                Placed(errors(q), 8, 7),
            )),
        ),
    )  # fmt: skip


def requests_by_outcome(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Requests by outcome",
        "Full: prefill skipped. Partial: some of the prompt came from the cache. Miss: nothing did. "
        "Uncacheable: too short to be cached. Unknown: the log does not say, which is not the same as a "
        "miss.",
        s.REQUESTS_PER_SECOND,
        Query(total(q.recorded(r.MODEL_REQUESTS_RATE, LOG_MODEL), ("outcome",)), "{{outcome}}"),
        colors=s.OUTCOMES,
        no_value=s.NO_LOG,
    )
    return s.stacked(panel)


def hit_rates(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Hit rates by model",
        "By tokens counts long prompts most, by requests counts everybody once. Both over the same requests.",
        s.RATIO,
        Query(q.recorded(r.MODEL_REQUEST_TOKEN_HIT_RATIO, LOG_MODEL), "{{model_name}} by tokens"),
        Query(q.recorded(r.MODEL_REQUEST_HIT_RATIO, LOG_MODEL), "{{model_name}} by requests"),
        no_value=s.NO_LOG,
    ).max(1)


def log_against_engines(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Requests in logs and at engines",
        "Where the logs' line is below the engines', requests do not pass the logged way; far above, they "
        "go to a managed API or to engines that are not scraped, or are counted by a log and by the vLLM "
        "plugin (request_metrics: false leaves out the latter).",
        s.REQUESTS_PER_SECOND,
        Query(total(q.recorded(r.MODEL_REQUESTS_RATE, LOG_MODEL)), "logs"),
        Query(total(q.recorded(r.TARGET_MODEL_FINISHED_REQUESTS_RATE, TARGET_MODEL)), "engines"),
    )


def unknown_share(q: Scope) -> stat.Panel:
    unknown = total(q.recorded(r.MODEL_REQUESTS_RATE, LOG_MODEL, outcome="unknown"))
    everything = total(q.recorded(r.MODEL_REQUESTS_RATE, LOG_MODEL))
    return s.stat_panel(
        "Unknown outcome",
        "Share of requests whose log does not say how many tokens were cached. They are in no hit rate.",
        s.RATIO,
        Query(ratio(or_zero(unknown, everything), everything), "unknown"),
        steps=((None, s.GOOD), (0.05, s.WARN), (0.5, s.BAD)),
        no_value=s.NO_LOG,
    )


def hit_rate_by_source(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Hit rate by log",
        "Request-weighted hit rate of each log and provider.",
        s.RATIO,
        Query(
            q.recorded(r.SOURCE_MODEL_REQUEST_HIT_RATIO, SOURCE_MODEL),
            "{{source}} {{provider}} {{model_name}}",
        ),
        no_value=s.NO_LOG,
    ).max(1)


def uncached_tokens(q: Scope) -> timeseries.Panel:
    prompt, cached = (
        total(q.recorded(rule, SOURCE_MODEL), ("model_name",))
        for rule in (r.SOURCE_MODEL_PROMPT_TOKENS_RATE, r.SOURCE_MODEL_CACHED_TOKENS_RATE)
    )
    return s.timeseries_panel(
        "Computed prompt tokens",
        "Prompt tokens that the cache did not hold: the work a better hit rate would take away.",
        s.TOKENS_PER_SECOND,
        Query(f"{prompt} - {cached}", "{{model_name}}"),
        no_value=s.NO_LOG,
    )


def ttft(q: Scope, quantile: str, name: str) -> timeseries.Panel:
    buckets = total(q.recorded(r.MODEL_TTFT_BUCKETS, LOG_MODEL), ("le", "outcome"))
    panel = s.timeseries_panel(
        f"Time to first token, {name}, by outcome",
        "Never read one line over all outcomes: it moves when the mixture moves, though nobody waits longer.",
        s.SECONDS,
        Query(f"histogram_quantile({quantile}, {buckets})", "{{outcome}}"),
        colors=s.OUTCOMES,
        no_value="No log with times to first token",
    )
    return s.over_decades(panel)


def slow_share(q: Scope, objective: float) -> timeseries.Panel:
    return s.timeseries_panel(
        f"Share slower than {objective:g} s",
        "Requests whose first token took longer than the objective, by outcome.",
        s.RATIO,
        Query(q.share_above(objective, c.REQUEST_TTFT, ("outcome",)), "{{outcome}}"),
        colors=s.OUTCOMES,
        no_value="No log with times to first token",
    ).max(1)


def duration(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Duration, p99, by outcome",
        "Time from request to last token. Where it grows and the time to first token does not, decoding is "
        "slow, not the cache.",
        s.SECONDS,
        Query(q.quantile(0.99, c.REQUEST_DURATION, ("outcome",)), "{{outcome}}"),
        colors=s.OUTCOMES,
        no_value="No log with durations",
    )


def computed_tokens(q: Scope) -> heatmap.Panel:
    return s.heatmap_panel(
        "Computed tokens per request",
        "Prompt tokens of each request that the cache did not hold.",
        s.TOKENS,
        q.buckets(c.REQUEST_COMPUTED_TOKENS),
        no_value=s.NO_LOG,
    )


def cached_ratio(q: Scope) -> heatmap.Panel:
    return s.heatmap_panel(
        "Cached share per request",
        "Share of each request's prompt that came from the cache. Two bands, near 0 and near 1, are two "
        "kinds of clients: see the groups.",
        s.RATIO,
        q.buckets(c.REQUEST_CACHED_RATIO),
        no_value=s.NO_LOG,
    )


def waiting_of_misses(q: Scope) -> heatmap.Panel:
    return s.heatmap_panel(
        "Time to first token of misses",
        "Every first token of requests for which the cache held nothing.",
        s.SECONDS,
        q.buckets(c.REQUEST_TTFT, outcome="miss"),
        no_value="No misses with a time to first token",
    )


def waiting_of_groups(q: Scope) -> timeseries.Panel:
    slowest = top(_LINES, q.quantile(0.95, c.REQUEST_TTFT, ("outcome", "group")))
    panel = s.timeseries_panel(
        "Time to first token, p95, by prompt group and outcome",
        f"The {_LINES} longest. Misses of one group far above all else are the scenario whose prompts the "
        "cache does not hold, while the average looks fine.",
        s.SECONDS,
        Query(slowest, "{{group}} {{outcome}}"),
        no_value="No log with times to first token",
    )
    return s.over_decades(panel)


_NO_DIAGNOSIS = "No provider says why"


def diagnosed(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Why a prefix was not found, by the provider",
        "What had changed since the request before: Anthropic's cache diagnostics, which clients have to ask "
        "for. A steady rate of tools_changed or system_changed is a prompt that is put together in another "
        "order or holds a time.",
        s.REQUESTS_PER_SECOND,
        Query(q.rate(c.REQUEST_DIAGNOSED_MISSES, ("reason",)), "{{reason}}"),
        no_value=_NO_DIAGNOSIS,
    )


def diagnosed_tokens(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Tokens missed, by the provider's reason",
        "Prompt tokens that would have come from the cache had nothing changed.",
        s.TOKENS_PER_SECOND,
        Query(q.rate(c.REQUEST_DIAGNOSED_TOKENS, ("reason",)), "{{reason}}"),
        no_value=_NO_DIAGNOSIS,
    )


def errors(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Failed requests by reason",
        "They are in no other number on this board.",
        s.REQUESTS_PER_SECOND,
        Query(q.rate(c.REQUEST_ERRORS, ("reason",)), "{{reason}}"),
        no_value="No failed requests",
    )
