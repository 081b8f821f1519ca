"""The overview for the person on call: the four questions on the first screen, the worst places below."""

from grafana_foundation_sdk.builders import stat, timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import LOG_MODEL, MODEL, TARGET_MODEL
from kvcache_dashboards import cold_start, links, model_tables, replica_tables, requests
from kvcache_dashboards import style as s
from kvcache_dashboards.mappers import Board, Placed, Row
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope, highest, ratio, total
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c

UID = "kvcache-overview"
ENGINES, LOGS = "engines", "logs"
_MORE_ON_COLD = links.to_board("Cold start", "kvcache-cold-start")


def board(options: Options) -> Board:
    q = Scope(options.cluster_label)
    return Board(
        UID,
        "Overview",
        "The prefix cache in four questions. Numbers of a whole model come from recorded series and follow "
        "the variables Cluster, Namespace and Model; those of single replicas follow Engine and Target too.",
        (
            Row("What is the hit rate?", (
                Placed(token_weighted(q), 4, 4),
                Placed(request_weighted(q), 4, 4),
                Placed(gap(q), 4, 4),
                Placed(hit_rates(q), 12, 4),
            )),
            Row("What does a miss cost?", (
                Placed(ttft_median(q), 9, 4),
                Placed(ttft_tail(q, options.ttft_objective), 9, 4),
                Placed(prefill_cost(q), 6, 4),
            )),
            Row("What is evicting, and why?", (
                Placed(usage(q), 4, 4),
                Placed(preemptions_against_queue(q), 10, 4),
                Placed(evictions(q), 10, 4),
            )),
            Row("What happens when it is cold?", (
                Placed(cold_start.cold_count(q).links(_MORE_ON_COLD), 4, 3),
                Placed(last_warmup(q), 4, 3),
                Placed(s.legend_right(cold_start.ttft(q, "0.99", "p99")).links(_MORE_ON_COLD), 8, 3),
                Placed(s.legend_right(cold_start.hit_rate_by_warmth(q)).links(_MORE_ON_COLD), 8, 3),
            )),
            Row("Where is it worst?", (
                Placed(model_tables.engine_models(q, options), 9, 8),
                Placed(replica_tables.lowest_hit_rates(q, options), 15, 8),
                Placed(model_tables.prompt_groups(q), 24, 8),
            )),
            Row("How is it spread over requests?", (
                Placed(requests.computed_tokens(q), 12, 8),
                Placed(requests.cached_ratio(q), 12, 8),
            )),
        ),
    )  # fmt: skip


def _engine_token_ratio(q: Scope) -> str:
    cached = total(q.recorded(r.MODEL_CACHED_PROMPT_TOKENS_RATE, MODEL))
    return ratio(cached, total(q.recorded(r.MODEL_MEASURED_PROMPT_TOKENS_RATE, MODEL)))


def _engine_request_ratio(q: Scope) -> str:
    hits = total(q.recorded(r.MODEL_ENGINE_HITS_RATE, MODEL))
    return ratio(hits, total(q.recorded(r.MODEL_ENGINE_REQUESTS_RATE, MODEL)))


def _log_token_ratio(q: Scope) -> str:
    level = ("model_name",)
    cached = total(q.recorded(r.SOURCE_MODEL_CACHED_TOKENS_RATE, level))
    return ratio(cached, total(q.recorded(r.SOURCE_MODEL_PROMPT_TOKENS_RATE, level)))


def _log_request_ratio(q: Scope) -> str:
    level = ("model_name",)
    hits = total(q.recorded(r.SOURCE_MODEL_REQUEST_HITS_RATE, level))
    return ratio(hits, total(q.recorded(r.SOURCE_MODEL_KNOWN_REQUESTS_RATE, level)))


def token_weighted(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Token-weighted",
        "Share of prompt tokens served from the cache: what the GPU was spared. It is weighted by tokens, "
        "so a few long conversations can hold it up while most requests miss. Read it beside the share of "
        "requests.",
        s.RATIO,
        Query(_engine_token_ratio(q), ENGINES),
        Query(_log_token_ratio(q), LOGS),
    )


def request_weighted(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Request-weighted",
        "Share of requests that skipped prefill. From logs: all but the last block or the last few percent "
        "of the prompt came from the cache, of all requests whose cached tokens are known. From engines: "
        "at most kvcache_request_hit_threshold_tokens were computed, of prompts longer than that. With "
        "short prompts the two differ.",
        s.RATIO,
        Query(_engine_request_ratio(q), ENGINES),
        Query(_log_request_ratio(q), LOGS),
    ).links(links.to_board("Requests", "kvcache-requests"))


def gap(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Gap between them",
        "By tokens less by requests, each from the same source. Above 40 points tokens look cached while "
        "most requests still compute a prefill worth waiting for.",
        s.RATIO,
        Query(f"{_engine_token_ratio(q)} - {_engine_request_ratio(q)}", ENGINES),
        Query(f"{_log_token_ratio(q)} - {_log_request_ratio(q)}", LOGS),
        steps=((None, s.GOOD), (0.25, s.WARN), (0.4, s.BAD)),
    )


def _lookups(q: Scope) -> str:
    """Hit rates by lookups, for engines without a better count; separate while preemptions inflate them."""
    window = "[$__rate_interval]"
    preempting = q.series(c.DATA_ANOMALIES, reason="preempted_lookups")
    doubtful = f"(sum by (target) (increase({preempting}{window})) > 0)"

    def named(doubt: str, which: str) -> str:
        only = f"and on (target) {q.series(c.TARGET_INFO, hit_basis='lookup')} {which} on (target) {doubtful}"
        hits, lookups = (
            total(f"rate({q.series(metric)}{window}) {only}")
            for metric in (c.PREFIX_HIT_TOKENS, c.PREFIX_QUERY_TOKENS)
        )
        return f'label_replace({ratio(hits, lookups)}, "doubt", " ({doubt})", "", "")'

    return f"{named('not comparable', 'unless')} or {named('preempted, not to be believed', 'and')}"


def hit_rates(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Hit rates: by tokens, long prompts count most; by requests, everybody once",
        "Both hit rates, from engines and from logs. A line named lookups stands for engines that count "
        "nothing better (hit_basis lookup, vLLM up to 0.12): they count a request again on every "
        "scheduling attempt, so under pressure it is not the hit rate. While they preempt it says so: "
        "preempted requests find the blocks they had just given up.",
        s.RATIO,
        Query(_engine_token_ratio(q), "by tokens, engines"),
        Query(_engine_request_ratio(q), "by requests, engines"),
        Query(_log_token_ratio(q), "by tokens, logs"),
        Query(_log_request_ratio(q), "by requests, logs"),
        Query(_lookups(q), "lookups{{doubt}}"),
        colors={
            "by tokens, engines": "blue",
            "by requests, engines": "green",
            "by tokens, logs": "light-blue",
            "by requests, logs": "light-green",
            "lookups (not comparable)": s.WARN,
            "lookups (preempted, not to be believed)": s.BAD,
        },
    )
    return s.legend_right(panel.max(1))


def _ttft(q: Scope, quantile: str, title: str, about: str) -> timeseries.Panel:
    buckets = total(q.recorded(r.MODEL_TTFT_BUCKETS, LOG_MODEL, outcome="!unknown"), ("le", "outcome"))
    panel = s.timeseries_panel(
        title,
        f"{about} of full hits, partial hits and misses, each by itself: merged into one they say nothing "
        "about any of them. From request logs and the vLLM plugin, over the last five minutes.",
        s.SECONDS,
        Query(f"histogram_quantile({quantile}, {buckets})", "{{outcome}}"),
        colors=s.OUTCOMES,
        no_value="No requests with a time to first token in a log or from the vLLM plugin",
    )
    return s.over_decades(s.legend_right(panel.links(links.to_board("Requests", "kvcache-requests"))))


def ttft_median(q: Scope) -> timeseries.Panel:
    return _ttft(q, "0.5", "Time to first token, p50", "Median time to first token")


def ttft_tail(q: Scope, objective: float) -> timeseries.Panel:
    panel = _ttft(q, "0.99", "Time to first token, p99", "99th percentile of the time to first token")
    return s.with_line(panel, objective)


def prefill_cost(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Prefill for 1,000 uncached tokens",
        "Seconds of prefill for 1,000 prompt tokens that the cache did not hold: what a miss costs.",
        s.SECONDS,
        Query(q.recorded(r.MODEL_PREFILL_SECONDS_PER_1K, MODEL), "{{model_name}}"),
        no_value="No prefill time on the engines' pages",
    )
    return s.legend_right(panel)


def usage(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Fullest replica",
        "Share of the device tier that running requests hold, of the fullest replica. Blocks cached for "
        "later count as free, so a full cache is no fault unless requests wait.",
        s.RATIO,
        Query(highest(q.recorded(r.MODEL_USAGE, MODEL, tier="device")), "usage"),
        steps=((None, s.GOOD), (0.85, s.WARN), (0.95, s.BAD)),
        no_value=s.NO_ENGINES,
    ).links(links.to_board("Pressure", "kvcache-pressure"))


def preemptions_against_queue(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Preemptions against the queue",
        "Running requests put back to free cache (vLLM preemptions, SGLang retractions), and requests "
        "waiting. Both rising: the cache is too small for this concurrency.",
        s.PER_SECOND,
        Query(total(q.recorded(r.MODEL_PREEMPTIONS_RATE, MODEL)), "preemptions/s"),
        Query(total(q.recorded(r.MODEL_WAITING, MODEL)), "waiting"),
        colors={"preemptions/s": s.BAD, "waiting": s.NEUTRAL},
        no_value=s.NO_ENGINES,
    )
    panel = s.on_right_axis(panel, "waiting", s.COUNT, "requests")
    return s.legend_right(panel.links(links.to_board("Pressure", "kvcache-pressure")))


def evictions(q: Scope) -> timeseries.Panel:
    blocks = q.recorded(r.TARGET_MODEL_EVICTED_BLOCKS_RATE, TARGET_MODEL)
    panel = s.timeseries_panel(
        "Evictions by tier",
        "Cached tokens dropped from a tier, by the engines' own counters (SGLang), and cached blocks "
        "removed, by KV events (vLLM, SGLang). A page of vLLM alone does not say what it evicts.",
        s.TOKENS_PER_SECOND,
        Query(total(q.recorded(r.MODEL_EVICTED_TOKENS_RATE, MODEL), ("tier",)), "{{tier}} tokens/s"),
        Query(total(blocks, ("tier",)), "{{tier}} blocks/s"),
        no_value="No engine counts evictions",
    )
    return s.legend_right(s.on_right_axis(panel, ".*blocks.*", s.BLOCKS_PER_SECOND, "blocks"))


def last_warmup(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Longest last warm-up",
        "Time the last cold start of a replica took until its hit rate had recovered, of the slowest "
        "replica.",
        s.SECONDS,
        Query(highest(q.series(c.WARMUP_DURATION)), "warm-up"),
        no_value="No cold start seen",
        sparkline=False,
    )
