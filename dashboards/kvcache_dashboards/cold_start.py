"""Cold starts: which replicas are cold, the cost, the duration, and what changed just before."""

from grafana_foundation_sdk.builders import stat, timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import MODEL, TARGET_MODEL
from kvcache_dashboards import replica_tables, variables
from kvcache_dashboards import style as s
from kvcache_dashboards.mappers import Board, Placed, Row
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope, bottom, ratio, top, total
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c

UID = "kvcache-cold-start"
_LINES = 10


def board(options: Options) -> Board:
    q = Scope(options.cluster_label)
    return Board(
        UID,
        "Cold start",
        "Hit rate and time to first token of replicas after a restart, or after their cache was emptied, "
        "against their steady state. A replica is cold until its hit rate has recovered to a share of what "
        "warm replicas of its model show, or until cold.max_duration has passed.",
        (
            Row("Who is cold?", (
                Placed(cold_count(q), 4, 4),
                Placed(cold_share(q), 4, 4),
                Placed(youngest(q), 4, 4),
                Placed(restarts(q), 4, 4),
                Placed(cold_over_time(q), 8, 4),
                Placed(replica_tables.youngest(q, options), 24, 8),
            )),
            Row("What does a cold replica cost?", (
                Placed(ttft(q, "0.5", "p50"), 8, 7),
                Placed(ttft(q, "0.99", "p99"), 8, 7),
                Placed(slowdown(q), 8, 7),
                Placed(hit_rate_by_warmth(q), 12, 7),
                Placed(cold_requests(q), 12, 7),
            )),
            Row("How fast does it recover?", (
                Placed(lowest_hit_rates(q), 8, 7),
                Placed(ages(q), 8, 7),
                Placed(warmups(q), 8, 7),
                Placed(slowest_cold(q), 24, 7),
            )),
            Row("What changed just before?", (
                Placed(versions(q), 8, 8),
                Placed(resets(q), 8, 8),
                Placed(capacities(q), 8, 8),
                Placed(replica_tables.configurations(q, options), 24, 9),
            )),
        ),
        (variables.cache_resets(q),),
    )  # fmt: skip


def cold_count(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Cold replicas",
        "Replicas whose cache has not recovered since the engine started.",
        s.COUNT,
        Query(f"sum(1 - {q.series(c.WARM)})", "cold"),
        steps=((None, s.GOOD), (1, s.WARN)),
        no_value=s.NO_ENGINES,
        sparkline=False,
    )


def cold_share(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Cold share",
        "Cold replicas by all replicas. A rollout faster than its replicas warm up makes the whole model "
        "cold.",
        s.RATIO,
        Query(f"avg(1 - {q.series(c.WARM)})", "cold"),
        steps=((None, s.GOOD), (0.1, s.WARN), (0.5, s.BAD)),
        no_value=s.NO_ENGINES,
    )


def youngest(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Youngest replica",
        "Time since the last start of an engine, where that is known.",
        s.SECONDS,
        Query(f"min({q.series(c.AGE)})", "age"),
        no_value="No start seen",
        sparkline=False,
    )


def restarts(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Restarts",
        "Restarts of engines in the time shown.",
        s.COUNT,
        Query(q.rise(c.TARGET_RESTARTS), "restarts"),
        steps=((None, s.GOOD), (0.5, s.WARN)),
        no_value="None seen",
        sparkline=False,
    )


def cold_over_time(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Cold and warm replicas",
        "How many replicas are cold and how many are warm.",
        s.COUNT,
        Query(f"sum(1 - {q.series(c.WARM)})", "cold"),
        Query(total(q.series(c.WARM)), "warm"),
        colors=s.PHASES,
        no_value=s.NO_ENGINES,
    )
    return s.legend_right(s.stacked(panel))


def _ttft(q: Scope, quantile: str, **where: str) -> str:
    # By model: engines have different buckets, and a sum over different buckets is not a distribution.
    buckets = q.recorded(r.MODEL_ENGINE_TTFT_BUCKETS, MODEL, **where)
    return f"histogram_quantile({quantile}, {total(buckets, ('le', 'phase', 'model_name'))})"


def ttft(q: Scope, quantile: str, name: str) -> timeseries.Panel:
    panel = s.timeseries_panel(
        f"Time to first token, {name}, cold against warm",
        "As the engines measure it, queue included. Hits and misses are in one, so only the distance "
        "between cold (dashed) and warm means something.",
        s.SECONDS,
        Query(_ttft(q, quantile), "{{model_name}} {{phase}}"),
    )
    return s.dashed(panel, ".* cold")


def slowdown(q: Scope) -> timeseries.Panel:
    cold, warm = (_ttft(q, "0.99", phase=phase) for phase in ("cold", "warm"))
    panel = s.timeseries_panel(
        "Cold p99 by warm p99",
        "How many times slower the slowest first tokens of cold replicas are.",
        s.TIMES,
        Query(f"{cold} / ignoring (phase) {warm}", "{{model_name}}"),
        no_value="Nothing cold beside something warm",
    )
    return s.with_line(panel, 4)


def hit_rate_by_warmth(q: Scope) -> timeseries.Panel:
    cached = q.recorded(r.TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE, TARGET_MODEL)
    prompt = q.recorded(r.TARGET_MODEL_PROMPT_TOKENS_RATE, TARGET_MODEL)

    def of(value: int) -> str:
        which = f"and on (target) ({q.series(c.WARM)} == {value})"
        return ratio(total(f"{cached} {which}"), total(f"({prompt} and on (target) {cached}) {which}"))

    return s.timeseries_panel(
        "Token-weighted hit rate, cold against warm",
        "Of the replicas that are cold and of those that are warm at each moment.",
        s.RATIO,
        Query(of(0), "cold"),
        Query(of(1), "warm"),
        colors=s.PHASES,
    ).max(1)


def cold_requests(q: Scope) -> timeseries.Panel:
    counts = q.recorded(r.MODEL_ENGINE_TTFT_BUCKETS, MODEL, le="+Inf")
    return s.timeseries_panel(
        "Requests served cold and warm",
        "Requests that got their first token from a cold and from a warm replica. Many cold ones right "
        "after a start: the router does not spare new replicas.",
        s.REQUESTS_PER_SECOND,
        Query(total(counts, ("phase",)), "{{phase}}"),
        colors=s.PHASES,
    )


def lowest_hit_rates(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Lowest hit rates by replica",
        f"Token-weighted, of the {_LINES} replicas with the lowest at each moment. After a restart a line "
        "begins low and should climb to the others.",
        s.RATIO,
        Query(bottom(_LINES, q.recorded(r.TARGET_MODEL_TOKEN_HIT_RATIO, TARGET_MODEL)), "{{target}}"),
    ).max(1)


def ages(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Age of the youngest replicas",
        f"Time since the engine started, of the {_LINES} youngest. Each fall to zero is a restart.",
        s.SECONDS,
        Query(bottom(_LINES, q.series(c.AGE)), "{{target}}"),
        no_value="No start seen",
    )


def warmups(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Last warm-up of the slowest replicas",
        "Time from start until the hit rate had recovered, or cold.max_duration where it never did.",
        s.SECONDS,
        Query(top(_LINES, q.series(c.WARMUP_DURATION)), "{{target}}"),
        no_value="No cold start seen",
    )


def slowest_cold(q: Scope) -> timeseries.Panel:
    buckets = q.recorded(r.TARGET_MODEL_ENGINE_TTFT_BUCKETS, TARGET_MODEL, phase="cold")
    quantile = f"histogram_quantile(0.99, {total(buckets, ('le', 'target'))})"
    return s.timeseries_panel(
        "Slowest cold replicas",
        f"Time to first token while cold, p99, of the {_LINES} slowest replicas.",
        s.SECONDS,
        Query(top(_LINES, quantile), "{{target}}"),
        no_value="Nothing was cold",
    )


def versions(q: Scope) -> timeseries.Panel:
    by = ("engine", "engine_version")
    panel = s.timeseries_panel(
        "Replicas by engine version",
        "A rollout shows as one colour replacing another.",
        s.COUNT,
        Query(f"count by ({', '.join(by)}) ({q.series(c.TARGET_INFO)})", "{{engine}} {{engine_version}}"),
        no_value=s.NO_ENGINES,
    )
    return s.stacked(panel)


def resets(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Restarts and resets",
        "Restarts that were seen, caches that were emptied without one (vLLM reset_prefix_cache, SGLang "
        "flush_cache), and scrapes in which a counter went back. Counters that go back without a restart "
        "are named among the anomalies on the exporter's board.",
        s.COUNT,
        Query(q.increase(c.TARGET_RESTARTS), "restarts"),
        Query(q.increase(c.CACHE_RESETS), "cache resets"),
        Query(q.increase(c.TARGET_RESETS), "counter resets"),
        no_value="None seen",
    )


def capacities(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Smallest capacities by replica",
        f"Tokens that the device tier holds, of the {_LINES} smallest. A replica that came back with less "
        "room than the others evicts sooner.",
        s.TOKENS,
        Query(bottom(_LINES, q.recorded(r.TARGET_MODEL_CAPACITY, TARGET_MODEL, tier="device")), "{{target}}"),
        no_value="No engine reports its capacity",
    )
