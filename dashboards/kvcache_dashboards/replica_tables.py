"""Tables of replicas, worst first; each row links to the next board."""

from grafana_foundation_sdk.builders import table

from kvcache_alerts import recording as r
from kvcache_alerts.promql import TARGET_MODEL
from kvcache_dashboards import links
from kvcache_dashboards import style as s
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope, among, bottom, highest, ratio, top, total
from kvcache_dashboards.tables import Column, marked, table_panel
from kvcache_exporter import catalogue as c

_WORST = 20


def lowest_hit_rates(q: Scope, options: Options) -> table.Panel:
    by = ("target", "model_name")
    lowest = bottom(_WORST, q.recorded(r.TARGET_MODEL_TOKEN_HIT_RATIO, TARGET_MODEL))
    usage_of = highest(q.recorded(r.TARGET_MODEL_USAGE, TARGET_MODEL, tier="device"), by)
    waiting = total(q.recorded(r.TARGET_MODEL_WAITING, TARGET_MODEL), by)
    preempted = total(q.recorded(r.TARGET_MODEL_PREEMPTIONS_RATE, TARGET_MODEL), by)
    return table_panel(
        "Replicas, worst first",
        f"The {_WORST} replicas with the lowest token-weighted hit rate over the last five minutes. A "
        "replica far below the others of its model gets requests whose prefix another one holds.",
        {"target": "Replica", "model_name": "Model"},
        (
            Column("By tokens", highest(lowest, by), s.RATIO, s.HIT_STEPS),
            Column("Usage", among(usage_of, by, lowest), s.RATIO),
            Column("Waiting", among(waiting, by, lowest), s.COUNT),
            Column("Preemptions", among(preempted, by, lowest), s.PER_SECOND),
        ),
        worst="By tokens",
        ascending=True,
        link=links.for_row("kvcache-pressure", "target", "Replica", options.cluster_label),
    )


def fullest(q: Scope, options: Options) -> table.Panel:
    by = ("target", "model_name")
    pressed = top(_WORST, highest(q.recorded(r.TARGET_MODEL_USAGE, TARGET_MODEL, tier="device"), by))
    evicted = total(q.recorded(r.TARGET_MODEL_EVICTED_TOKENS_RATE, TARGET_MODEL, tier="device"), by)

    def beside(expression: str) -> str:
        return among(expression, by, pressed)

    return table_panel(
        "Replicas, fullest first",
        f"The {_WORST} fullest replicas with their queue, preemptions, evictions and hit rates.",
        {"target": "Replica", "model_name": "Model"},
        (
            Column("Usage", pressed, s.RATIO, ((None, s.GOOD), (0.85, s.WARN), (0.95, s.BAD))),
            Column("Waiting", beside(total(q.recorded(r.TARGET_MODEL_WAITING, TARGET_MODEL), by)), s.COUNT),
            Column(
                "Preemptions",
                beside(total(q.recorded(r.TARGET_MODEL_PREEMPTIONS_RATE, TARGET_MODEL), by)),
                s.PER_SECOND,
            ),
            Column("Evicted", beside(evicted), s.TOKENS_PER_SECOND),
            Column(
                "By tokens",
                beside(highest(q.recorded(r.TARGET_MODEL_TOKEN_HIT_RATIO, TARGET_MODEL), by)),
                s.RATIO,
                s.HIT_STEPS,
            ),
            Column(
                "By requests",
                beside(highest(q.recorded(r.TARGET_MODEL_ENGINE_REQUEST_HIT_RATIO, TARGET_MODEL), by)),
                s.RATIO,
                s.HIT_STEPS,
            ),
        ),
        worst="Usage",
        ascending=False,
        no_value=s.NO_ENGINES,
        link=links.for_row("kvcache-cold-start", "target", "Replica", options.cluster_label),
    )


def youngest(q: Scope, options: Options) -> table.Panel:
    by = ("target",)
    young = bottom(20, q.series(c.AGE))
    hit = total(q.recorded(r.TARGET_MODEL_CACHED_PROMPT_TOKENS_RATE, TARGET_MODEL), by)
    prompts = total(q.recorded(r.TARGET_MODEL_PROMPT_TOKENS_RATE, TARGET_MODEL), by)

    def beside(expression: str) -> str:
        return among(expression, by, young)

    return table_panel(
        "Replicas, youngest first",
        "The 20 replicas that started last: whether they are warm, how long their last cold start took, "
        "and how often they restarted.",
        {"target": "Replica"},
        (
            Column("Age", highest(young, by), s.SECONDS),
            Column("Warm", beside(highest(q.series(c.WARM), by)), s.YES_NO, ((None, s.BAD), (1, s.GOOD))),
            Column("Last warm-up", beside(highest(q.series(c.WARMUP_DURATION), by)), s.SECONDS),
            Column("Restarts", beside(highest(q.series(c.TARGET_RESTARTS), by)), s.COUNT),
            Column("By tokens", beside(ratio(hit, prompts)), s.RATIO, s.HIT_STEPS),
        ),
        worst="Age",
        ascending=True,
        no_value="No start seen",
        link=links.for_row("kvcache-pressure", "target", "Replica", options.cluster_label),
    )


def configurations(q: Scope, options: Options) -> table.Panel:
    shown = {
        "target": "Replica",
        "engine": "Engine",
        "engine_version": "Version",
        "prefix_caching": "Prefix caching",
        "block_size": "Block size",
        "cache_dtype": "Cache type",
        "hash_algorithm": "Hash",
        "eviction_policy": "Eviction",
        "hit_basis": "Hit basis",
    }
    started = f"1000 * {q.series(c.TARGET_START)}"
    by = ", ".join(shown)
    info = f"max by ({by}) ({q.series(c.TARGET_INFO)})"
    with_start = f"max by (target) ({started}) * on (target) group_right () {info}"
    panel = table_panel(
        "Cache configuration of each engine",
        "Version and cache configuration of each replica, the one that started last first. Replicas of one "
        "model that differ here should not. A hit basis of lookup is not comparable with the others.",
        shown,
        (Column("Started", f"({with_start}) or (0 * {info})", s.MOMENT),),
        worst="Started",
        ascending=False,
        no_value=s.NO_ENGINES,
        link=links.for_row("kvcache-pressure", "target", "Replica", options.cluster_label),
    )
    marked(panel, "Started", {"0": ("not known", s.FAINT)})
    return marked(panel, "Hit basis", s.BASES)


def drift(q: Scope, options: Options) -> table.Panel:
    by = ("target", "engine", "engine_version", "hit_basis")
    info = highest(q.series(c.TARGET_INFO), by)
    families = (q.series(m) for m in (c.TARGET_MISSING, c.TARGET_DEPRECATED))
    missing, deprecated = (f"max by (target) ({f}) * on (target) group_right () {info}" for f in families)
    anomalies = q.rise(c.DATA_ANOMALIES, ("target",))
    wrong = f"{anomalies} * on (target) group_right () {info}"
    panel = table_panel(
        "Families missing or renamed, and anomalies",
        "Families of each target's page that the exporter needs and does not find, those that newer "
        "versions have renamed, and wrong or misleading values in the time shown. A hit basis of lookup is "
        "not comparable with the others.",
        {"target": "Target", "engine": "Engine", "engine_version": "Version", "hit_basis": "Hit basis"},
        (
            Column("Missing", missing, s.COUNT, ((None, s.GOOD), (1, s.WARN))),
            Column("Renamed", deprecated, s.COUNT, ((None, s.GOOD), (1, s.WARN))),
            Column("Anomalies", wrong, s.COUNT, ((None, s.GOOD), (1, s.BAD))),
        ),
        worst="Missing",
        ascending=False,
        no_value="No targets",
        link=links.for_row("kvcache-pressure", "target", "Target", options.cluster_label),
    )
    return marked(panel, "Hit basis", s.BASES)
