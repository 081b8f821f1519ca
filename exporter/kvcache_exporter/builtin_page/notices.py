"""The notices at the top of the page: what is wrong now, each with the runbook that helps."""

from collections.abc import Iterator
from typing import NamedTuple

from kvcache_exporter.summary.schema import DataQuality, Summary

_SUSPECT = {
    "lookup_basis": "This engine's version counts lookups, not requests: its hit rate cannot be compared.",
    "cached_exceeds_prompt": "More cached than prompt tokens were reported: such windows show no ratio.",
    "hits_exceed_queries": "More lookup hits than lookups were reported.",
    "lookups_recounted": "Lookups are counted more than once: the engine is short of memory.",
    "preempted_lookups": "The hit rate is made of lookups while requests are preempted: it is too high.",
    "frozen": "A count of cached tokens stands still while another sees hits.",
    "went_back": "A counter went back in the same process.",
    "alternating": "Several processes answer under one address: scrape each engine by itself.",
    "counted_twice": "Workers are read twice, through their router and by themselves: sums are too high.",
}


class Notice(NamedTuple):
    text: str
    runbook: str


def notices(summary: Summary) -> Iterator[Notice]:
    """All notices, the most urgent first; none if all is well."""
    quality, engines = summary.data_quality, summary.fleet.engines
    if quality.down.total:
        some = _some(quality.down.total, quality.targets, "target")
        names = _names(quality.down.shown[0].target, quality.down.total)
        yield Notice(f"{some} without a usable page: {names}.", "KVCacheTargetDown")
    yield from _of_pressure(summary)
    for reason in engines.suspect if engines else ():
        yield Notice(
            _SUSPECT.get(reason, f"Impossible values on engines' pages in the last hour: {reason}."),
            "KVCacheDataAnomaly",
        )
    if not summary.exporter.config_reload_ok:
        yield Notice(
            "The configuration was not reloaded: the old one is in force.",
            "KVCacheExporterConfigReloadFailed",
        )
    yield from _of_logs(quality)
    yield from _of_events(summary)
    if quality.discovery_problems.total:
        yield Notice("Targets could not be looked up.", "KVCacheTargetsMissing")
    if quality.incomplete_targets:
        some = _some(quality.incomplete_targets, quality.targets, "target")
        yield Notice(f"{some} with missing or renamed families.", "KVCacheAdapterDrift")


def _of_pressure(summary: Summary) -> Iterator[Notice]:
    found = summary.pressure.preempting
    if found.total:
        names = _names(found.shown[0], found.total)
        yield Notice(f"Running requests are preempted, most on {names}.", "KVCachePreemptionSpike")
    found = summary.pressure.full
    if found.total:
        names = _names(found.shown[0], found.total)
        yield Notice(f"The cache is full while requests wait: {names}.", "KVCacheUsageHigh")


def _of_logs(quality: DataQuality) -> Iterator[Notice]:
    for log in quality.logs.shown:
        if log.problems:
            yield Notice(f"Log source {log.source} cannot be read: {log.problems[0]}.", "KVCacheLogStalled")
    failures = sum(sum(log.parse_failures.values()) for log in quality.logs.shown)
    if failures:
        yield Notice(
            f"{failures} log line{'s' if failures > 1 else ''} could not be read.",
            "KVCacheLogParseFailures",
        )


def _of_events(summary: Summary) -> Iterator[Notice]:
    for each in summary.data_quality.events.shown:
        if each.problem:
            yield Notice(f"KV events of {each.target} cannot be heard: {each.problem}.", "KVCacheEventsLost")
    events = summary.fleet.events
    if events and (lost := events.windows["1h"].lost_batches):
        yield Notice(
            f"{lost} batch{'es' if lost > 1 else ''} of KV events lost in the last hour: "
            "resident and re-warmed blocks are approximate.",
            "KVCacheEventsLost",
        )


def _names(first: str, count: int) -> str:
    return f"{first} and {count - 1} more" if count > 1 else first


def _some(count: int, whole: int, noun: str) -> str:
    return f"{count} of {whole} {noun}{'' if whole == 1 else 's'}"
