"""Whether the other boards can be trusted: targets, logs and events as seen by the exporter."""

from grafana_foundation_sdk.builders import stat, timeseries

from kvcache_alerts import recording as r
from kvcache_alerts.promql import MODEL
from kvcache_dashboards import intake, replica_tables
from kvcache_dashboards import style as s
from kvcache_dashboards.mappers import Board, Placed, Row
from kvcache_dashboards.options import Options
from kvcache_dashboards.queries import Scope, ratio, top, total
from kvcache_dashboards.style import Query
from kvcache_exporter import catalogue as c

UID = "kvcache-exporter"
_LINES = 10


def board(options: Options) -> Board:
    q = Scope(options.cluster_label)
    return Board(
        UID,
        "Exporter",
        "Whether the other boards can be trusted: what the exporter reaches, understands and has read.",
        (
            Row("Does it reach every engine?", (
                Placed(up(q), 4, 5),
                Placed(down(q), 4, 5),
                Placed(reload_ok(q), 4, 5),
                Placed(version(q), 4, 5),
                Placed(up_over_time(q), 8, 5),
                Placed(scrape_failures(q), 8, 7),
                Placed(scrape_duration(q), 8, 7),
                Placed(staleness(q), 8, 7),
            )),
            Row("Does it understand their pages?", (
                Placed(anomalies(q), 8, 7),
                Placed(lookup_inflation(q), 8, 7),
                Placed(traffic(q), 8, 7),
                Placed(replica_tables.drift(q, options), 24, 8),
            )),
            Row("Does it keep up with the logs?", (
                Placed(intake.lag(q), 8, 7),
                Placed(intake.record_age(q), 8, 7),
                Placed(intake.lines(q), 8, 7),
                Placed(intake.parse_failures(q), 12, 7),
                Placed(intake.rotations(q), 12, 7),
            )),
            Row("Does it get the KV events?", (
                Placed(intake.events(q), 8, 7),
                Placed(intake.events_lost(q), 8, 7),
                Placed(intake.followed_blocks(q), 8, 7),
            )),
            Row("How big is it?", (
                Placed(active_series(q), 7, 7),
                Placed(dropped_series(q), 7, 7),
                Placed(discovery_failures(q), 6, 7),
                Placed(price_table(q), 4, 7),
            )),
        ),
    )  # fmt: skip


def up(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Targets up",
        "Share of targets whose last scrape gave a usable page.",
        s.RATIO,
        Query(f"avg({q.series(c.TARGET_UP)})", "up"),
        steps=((None, s.BAD), (0.99, s.WARN), (1, s.GOOD)),
        no_value="No targets",
    )


def down(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Targets down",
        "Targets whose last scrape gave no usable page.",
        s.COUNT,
        Query(f"sum(1 - {q.series(c.TARGET_UP)})", "down"),
        steps=((None, s.GOOD), (1, s.BAD)),
        no_value="No targets",
    )


def reload_ok(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Configuration loaded",
        "Whether the last attempt to load the configuration succeeded. If not, the old one is in use.",
        s.YES_NO,
        Query(f"min({q.series(c.CONFIG_RELOAD_OK)})", "loaded"),
        steps=((None, s.BAD), (1, s.GOOD)),
        no_value="No exporter",
        sparkline=False,
    )


def version(q: Scope) -> stat.Panel:
    panel = s.stat_panel(
        "Exporters by version",
        "Running exporters and their versions.",
        s.COUNT,
        Query(f"count by (version) ({q.series(c.BUILD_INFO)})", "{{version}}"),
        no_value="No exporter",
        sparkline=False,
    )
    return s.with_names(panel)


def price_table(q: Scope) -> stat.Panel:
    return s.stat_panel(
        "Price table of",
        "The date of the configured price table. Costs are as right as these prices.",
        s.MOMENT,
        Query(f"1000 * min({q.series(c.PRICE_TABLE_TIME)})", "prices"),
        no_value="No price table configured",
        sparkline=False,
    )


def up_over_time(q: Scope) -> timeseries.Panel:
    panel = s.timeseries_panel(
        "Targets up and down",
        "Targets by whether their last scrape gave a usable page.",
        s.COUNT,
        Query(total(q.series(c.TARGET_UP)), "up"),
        Query(f"sum(1 - {q.series(c.TARGET_UP)})", "down"),
        colors={"up": s.GOOD, "down": s.BAD},
        no_value="No targets",
    )
    return s.legend_right(s.stacked(panel))


def scrape_failures(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Failed scrapes by reason",
        "Scrapes that gave no usable page.",
        s.PER_SECOND,
        Query(q.rate(c.TARGET_SCRAPE_FAILURES, ("reason",)), "{{reason}}"),
        no_value="No scrape failed",
    )


def scrape_duration(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Slowest scrapes",
        f"Time the last scrape took, of the {_LINES} slowest targets. An engine that answers slowly is "
        "busy or its page is large.",
        s.SECONDS,
        Query(top(_LINES, q.series(c.TARGET_SCRAPE_DURATION)), "{{target}}"),
        no_value="No targets",
    )


def staleness(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Time since the last good scrape",
        f"Of the {_LINES} targets that have been silent longest.",
        s.SECONDS,
        Query(top(_LINES, f"time() - {q.series(c.TARGET_LAST_SUCCESS)}"), "{{target}}"),
        no_value="No targets",
    )


def anomalies(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Values that cannot be right",
        "Wrong or misleading values on engines' pages, by reason. The hit rate of such a window is left out.",
        s.COUNT,
        Query(q.increase(c.DATA_ANOMALIES, ("reason",)), "{{reason}}"),
        no_value="No targets",
    )


def lookup_inflation(q: Scope) -> timeseries.Panel:
    by = ("target",)
    repeated = ratio(q.rate(c.PREFIX_QUERY_TOKENS, by), q.rate(c.PROMPT_TOKENS, by))
    panel = s.timeseries_panel(
        "Lookups per prompt token",
        "Above 1 the engine counts requests again on every scheduling attempt: hits by queries is then "
        f"not the hit rate. The {_LINES} targets with most.",
        s.TIMES,
        Query(top(_LINES, repeated), "{{target}}"),
    )
    return s.with_line(panel, 1.05)


def traffic(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Prompt tokens",
        "What the hit rates are made of, by model. Without traffic there is no hit rate to show.",
        s.TOKENS_PER_SECOND,
        Query(q.recorded(r.MODEL_PROMPT_TOKENS_RATE, MODEL), "{{model_name}}"),
    )


def active_series(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Series on the page",
        "Label sets on the exporter's page, a histogram counted once.",
        s.COUNT,
        Query(total(q.series(c.ACTIVE_SERIES)), "series"),
        no_value="No exporter",
    )


def dropped_series(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Series left out",
        "Label sets left out by limits.series_per_metric, by metric. If there are any, sums are too low.",
        s.COUNT,
        Query(q.increase(c.DROPPED_SERIES, ("metric",)), "{{metric}}"),
        no_value="Nothing left out",
    )


def discovery_failures(q: Scope) -> timeseries.Panel:
    return s.timeseries_panel(
        "Failed look-ups of targets",
        "DNS, file or Kubernetes look-ups that failed, by reason; the last known targets are kept.",
        s.COUNT,
        Query(q.increase(c.DISCOVERY_FAILURES, ("reason",)), "{{reason}}"),
        no_value="No exporter",
    )
