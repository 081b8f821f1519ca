"""Causes of evictions: usage, evictions, re-warming, preemptions and the queue, down to the replica."""

from grafana_foundation_sdk.builders import heatmap, timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import MODEL, TARGET_MODEL
from kvcache_dashboards import replica_tables, routing, tiers
from kvcache_dashboards import style as s
from kvcache_dashboards.mappers import Board, Placed, Row
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope, ratio, top, total
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c

UID = "kvcache-pressure"
_WORST = 20
_LINES = 10
_NO_SAMPLES = "No engine samples its blocks"


def board(options: Options) -> Board:
    q = Scope(options.cluster_label)
    return Board(
        UID,
        "Pressure",
        "Usage, evictions, re-warming, preemptions and the queue, per replica: what is evicting, and why.",
        (
            Row("How full is the cache?", (
                Placed(usage_by_model(q), 8, 7),
                Placed(fullest_replicas(q), 8, 7),
                Placed(capacity(q), 8, 7),
            )),
            Row("Who is preempted, and who waits?", (
                Placed(preemptions_by_replica(q), 6, 7),
                Placed(preempted_share(q), 6, 7),
                Placed(recomputed_tokens(q), 6, 7),
                Placed(queue(q), 6, 7),
            )),
            Row("What is evicted?", (
                Placed(evicted_tokens(q), 8, 7),
                Placed(turnover(q), 8, 7),
                Placed(evicted_blocks(q), 8, 7),
                Placed(tiers.traffic(q), 8, 7),
                Placed(tiers.failed_loads(q), 8, 7),
                Placed(resident_blocks(q), 8, 7),
            )),
            Row("Does it evict what it needs again?", (
                Placed(rewarmed_share(q), 12, 7),
                Placed(rewarm_delay(q), 12, 7),
                Placed(block_lifetime(q), 8, 8),
                Placed(block_idle(q), 8, 8),
                Placed(block_reuse(q), 8, 8),
            )),
            Row("Do routers find the caches?", (
                Placed(routing.predicted_and_delivered(q), 12, 7),
                Placed(routing.requests_by_worker(q), 6, 7),
                Placed(routing.busiest_share(q), 6, 7),
            )),
            Row("Which replica is worst?", (Placed(replica_tables.fullest(q, options), 24, 12),)),
        ),
    )  # fmt: skip


def usage_by_model(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Usage of the fullest replica by model",
        "Share of a tier that running requests hold. Blocks cached for later count as free.",
        s.RATIO,
        Query(q.recorded(r.MODEL_USAGE, MODEL), "{{model_name}} {{tier}}"),
        no_value=s.NO_ENGINES,
    )
    return s.with_line(panel.max(1), 0.95)


def fullest_replicas(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Fullest replicas",
        f"Usage of the device tier of the {_LINES} fullest replicas at each moment.",
        s.RATIO,
        Query(top(_LINES, q.recorded(r.TARGET_MODEL_USAGE, TARGET_MODEL, tier="device")), "{{target}}"),
        no_value=s.NO_ENGINES,
    )
    return s.with_line(panel.max(1), 0.95)


def capacity(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Capacity by tier",
        "Tokens that the tiers of all replicas can hold. A step is a replica that came or went, or was "
        "started with another size.",
        s.TOKENS,
        Query(total(q.recorded(r.TARGET_MODEL_CAPACITY, TARGET_MODEL), ("tier",)), "{{tier}}"),
        colors=s.TIERS,
        no_value="No engine reports its capacity",
    )


def preemptions_by_replica(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Preemptions by replica",
        "Running requests put back into the queue to free cache (vLLM preemptions, SGLang retractions), "
        f"of the {_LINES} replicas with most at each moment.",
        s.PER_SECOND,
        Query(top(_LINES, q.recorded(r.TARGET_MODEL_PREEMPTIONS_RATE, TARGET_MODEL)), "{{target}}"),
        no_value=s.NO_ENGINES,
    )


def recomputed_tokens(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Tokens computed again",
        "Prompt tokens computed again for requests that had been put back: what preemptions cost beside the "
        "wait. SGLang counts them (0.5.18); no vLLM page does.",
        s.TOKENS_PER_SECOND,
        Query(q.rate(c.RECOMPUTED_TOKENS, ("model_name",)), "{{model_name}}"),
        no_value="No engine counts them",
    )


def preempted_share(q: Scope) -> timeseries.Panel:
    preempted = q.recorded(r.MODEL_PREEMPTIONS_RATE, MODEL)
    finished = q.recorded(r.MODEL_FINISHED_REQUESTS_RATE, MODEL)
    return s.timeseries_panel(
        "Preemptions per finished request",
        "Above 0.1, one request in ten is computed again from its start: latency goes and throughput with "
        "it. One request may be preempted more than once.",
        s.COUNT,
        Query(ratio(preempted, finished), "{{model_name}}"),
    )


def queue(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Running and waiting requests",
        "Requests being computed and requests in the queue, over all replicas of each model.",
        s.COUNT,
        Query(q.recorded(r.MODEL_RUNNING, MODEL), "{{model_name}} running"),
        Query(q.recorded(r.MODEL_WAITING, MODEL), "{{model_name}} waiting"),
        no_value=s.NO_ENGINES,
    )


def evicted_tokens(q: Scope) -> timeseries.Panel:
    evicted = total(q.recorded(r.MODEL_EVICTED_TOKENS_RATE, MODEL), ("model_name", "tier"))
    return s.timeseries_panel(
        "Evicted tokens",
        "Cached tokens dropped from a tier, moved to a slower one or destroyed, by the engines' own "
        "counters. vLLM counts none: see evicted blocks.",
        s.TOKENS_PER_SECOND,
        Query(evicted, "{{model_name}} {{tier}}"),
        no_value="No engine counts evicted tokens",
    )


def turnover(q: Scope) -> timeseries.Panel:
    evicted = q.recorded(r.TARGET_MODEL_EVICTED_TOKENS_RATE, TARGET_MODEL)
    size = q.recorded(r.TARGET_MODEL_CAPACITY, TARGET_MODEL)
    per_minute = f"60 * {ratio(evicted, size)}"
    panel = s.timeseries_panel(
        "Share of the cache evicted a minute",
        f"Evicted tokens a minute by the tier's capacity, of the {_LINES} replicas with most. At 0.5 the "
        "whole cache is replaced every two minutes: prefixes do not live until they are asked for again.",
        s.RATIO,
        Query(top(_LINES, per_minute), "{{target}} {{tier}}"),
        no_value="No engine counts evicted tokens",
    )
    return s.with_line(panel, 0.5)


def evicted_blocks(q: Scope) -> timeseries.Panel:
    evicted = q.recorded(r.TARGET_MODEL_EVICTED_BLOCKS_RATE, TARGET_MODEL)
    return s.timeseries_panel(
        "Evicted blocks",
        "Cached blocks removed from a tier, by the engines' KV events.",
        s.BLOCKS_PER_SECOND,
        Query(total(evicted, ("model_name", "tier")), "{{model_name}} {{tier}}"),
        no_value=s.NO_EVENTS,
    )


def resident_blocks(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Cached blocks",
        "Blocks that the caches hold, by the engines' KV events.",
        s.COUNT,
        Query(total(q.series(c.RESIDENT_BLOCKS), ("model_name", "tier")), "{{model_name}} {{tier}}"),
        no_value=s.NO_EVENTS,
    )


def rewarmed_share(q: Scope) -> timeseries.Panel:
    by = ("model_name",)
    again = total(q.recorded(r.TARGET_MODEL_REWARMED_BLOCKS_RATE, TARGET_MODEL), by)
    stored = total(q.recorded(r.TARGET_MODEL_STORED_BLOCKS_RATE, TARGET_MODEL, tier="device"), by)
    panel = s.timeseries_panel(
        "Re-warmed share of stored blocks",
        "Blocks stored again after they had been removed, by all stored blocks: computed twice because the "
        "cache was too small. Above 0.3 it thrashes.",
        s.RATIO,
        Query(ratio(again, stored), "{{model_name}}"),
        no_value=s.NO_EVENTS,
    )
    return s.with_line(panel, 0.3)


def rewarm_delay(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Time until an evicted block is needed again",
        "How much longer blocks would have had to live: the room a bigger cache would have to buy.",
        s.SECONDS,
        Query(q.quantile(0.5, c.REWARM_DELAY), "p50"),
        Query(q.quantile(0.9, c.REWARM_DELAY), "p90"),
        no_value=s.NO_EVENTS,
    )


def block_lifetime(q: Scope) -> heatmap.Panel:
    return s.heatmap_panel(
        "Lifetime of blocks",
        "Time from a block's allocation until it is given to other tokens, of the blocks the engine samples "
        "(vLLM: --kv-cache-metrics).",
        s.SECONDS,
        q.buckets(c.BLOCK_LIFETIME),
        no_value=_NO_SAMPLES,
    )


def block_idle(q: Scope) -> heatmap.Panel:
    return s.heatmap_panel(
        "Idle time before eviction",
        "Time from a block's last use until it is given to other tokens. Short: blocks go that were just "
        "in use.",
        s.SECONDS,
        q.buckets(c.BLOCK_IDLE),
        no_value=_NO_SAMPLES,
    )


def block_reuse(q: Scope) -> heatmap.Panel:
    return s.heatmap_panel(
        "Time between two uses of a block",
        "Blocks must live longer than this to be hit. Compare with their lifetime.",
        s.SECONDS,
        q.buckets(c.BLOCK_REUSE),
        no_value=_NO_SAMPLES,
    )
