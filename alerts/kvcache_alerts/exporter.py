"""Alerts on the exporter itself."""

from kvcache_alerts.model import Alert, Condition, Parameter, hold, severity
from kvcache_alerts.promql import series, total
from kvcache_exporter import catalogue as c

SCRAPED = "up"
"""Prometheus's own series for each scrape; with `job` and `instance` the only names not in the catalogue."""
_INSTANCE = ("job", "instance")
_SCRAPE_FAILS = f"{SCRAPED} == 0 and on (job, instance) last_over_time({series(c.BUILD_INFO)}[1d])"
_NOWHERE = f"absent({series(c.BUILD_INFO)})"

EXPORTER_DOWN = Alert(
    name="KVCacheExporterDown",
    fires="Prometheus cannot scrape an exporter that it scraped within the last day, or scrapes none at all.",
    summary="kvcache-exporter cannot be scraped.",
    description="{{ with $labels.instance }}{{ . }} cannot be scraped.{{ else }}No kvcache-exporter is "
    "scraped at all.{{ end }} (value {{ $value }}) All other KV cache alerts are blind meanwhile.",
    board="kvcache-exporter",
    conditions=(Condition(f"({_SCRAPE_FAILS}) or ({_NOWHERE} unless on () ({_SCRAPE_FAILS}))"),),
    parameters=(
        hold("5m", "A restart or an update takes less."),
        severity("critical", "Without it no other alert of this set can fire."),
    ),
)

CONFIG_RELOAD_FAILED = Alert(
    name="KVCacheExporterConfigReloadFailed",
    fires="A reload of the configuration failed, and the exporter runs on the old one.",
    summary="kvcache-exporter runs on an old configuration because the new one is not valid.",
    description="{{ $labels.instance }} refused its configuration (last reload successful: {{ $value }}); "
    "its log says file, line and what was expected, as does `kvcache-exporter check`.",
    board="kvcache-exporter",
    conditions=(Condition(f"{total(_INSTANCE, series(c.CONFIG_RELOAD_OK), operator='min')} == 0"),),
    parameters=(
        hold("5m", "Time to notice and correct a typing error."),
        severity("warning", "The old configuration is still in use; a restart would fail."),
    ),
)

SERIES_DROPPED = Alert(
    name="KVCacheExporterSeriesDropped",
    fires="A metric has more label sets than limits.series_per_metric; further ones are dropped.",
    summary="kvcache-exporter leaves series out because a metric has too many label sets.",
    description="{{ $labels.instance }} left out label sets of {{ $labels.metric }} {{ $value | humanize }} "
    "times in {window}. Raise limits.series_per_metric, or lower limits.groups_per_source or "
    "limits.models_per_source.",
    board="kvcache-exporter",
    conditions=(
        Condition(f"{total(_INSTANCE, f'increase({series(c.DROPPED_SERIES)}[$window])', 'metric')} > $floor"),
    ),
    parameters=(
        Parameter("floor", "0", "Every series left out makes sums too low."),
        Parameter("window", "15m", "Covers several scrapes.", "duration"),
        hold("15m", "Short bursts of new labels are dropped again by themselves."),
        severity("warning", "Sums over the metric are too low."),
    ),
)

ALERTS = (EXPORTER_DOWN, CONFIG_RELOAD_FAILED, SERIES_DROPPED)
