"""The series that rules over raw pages cannot produce, or produce differently, and why."""

from collections.abc import Mapping

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric

_WINDOW = "A convenience for readers without PromQL; the recording rules give the same over 5 minutes."
_LIFE = "Needs a history of the target: start times, process ids and counters from page to page."
AREAS = ("Targets", "Engines", "Routers", "Windows")
"""Areas of the catalogue that come from engine pages; the others need logs, events or the exporter itself."""

LEFT_OUT: Mapping[Metric, str] = {
    c.TARGET_SCRAPE_FAILURES: "Prometheus does not store why a scrape failed; its targets page shows it.",
    c.TARGET_RESETS: _LIFE,
    c.TARGET_RESTARTS: _LIFE,
    c.WARM: _LIFE,
    c.WARMUP_DURATION: _LIFE,
    c.PROBE_FAILED: "Only on /probe.",
    c.DATA_ANOMALIES: "Compares several pairs of counters over time, series by series.",
    c.TOKEN_HIT_RATIO: _WINDOW,
    c.REQUEST_HIT_RATIO: _WINDOW,
    c.PREEMPTIONS_PER_SECOND: _WINDOW,
    c.EVICTED_TOKENS_PER_SECOND: _WINDOW,
    c.PREFILL_SECONDS_PER_1K: _WINDOW,
}

DIFFERENT: Mapping[Metric, str] = {
    c.CAPACITY_TOKENS: "Absent for vLLM: it is a label there, and PromQL cannot convert labels to numbers.",
    c.USED_TOKENS: "Absent for vLLM, where it is usage times capacity.",
    c.ENGINE_TTFT: "Without `phase`: cold and warm are not distinguished.",
    c.REQUEST_HIT_THRESHOLD: "For vLLM's block sizes of 1, 8 and so on up to 512; otherwise absent.",
    c.CACHE_RESETS: "The engine's own count of calls; the exporter counts scrapes with a call, or KV events.",
    c.TARGET_UP: "The result of Prometheus' own scrape; a target that never had an engine's page is unknown, "
    "one that has none any more is remembered for a day.",
    c.TARGET_SCRAPE_DURATION: "Of Prometheus' own scrape.",
    c.TARGET_LAST_SUCCESS: "Of Prometheus' own scrape.",
    c.AGE: "Only if the page has the process's start; otherwise only the exporter knows of restarts.",
    c.TARGET_DEPRECATED: "Counts names, where the exporter counts families.",
    c.TARGET_INFO: "With the best hit basis of any model or rank of the target.",
}
