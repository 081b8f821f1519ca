"""Langfuse's observations: usage keys are disjoint; the total shows if an SDK sent overlapping ones."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from kvcache_exporter.requests.formats.layouts import Layouts
from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.rows import Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.statuses import failure_of_text
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import Seconds, Tokens, seconds, token

_READ = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens", "input_cache_read_tokens")
_WRITTEN = ("input_cache_creation", "cache_creation_input_tokens", "input_cache_write")
_TTLS = (("5m", "input_cache_creation_5m"), ("1h", "input_cache_creation_1h"))
_GENERATION = (None, "GENERATION")
"""Types of observations that are requests."""
_COUNTED = ("input", "output", "total", "cache_")
_CACHE_KEYS = frozenset((*_READ, *_WRITTEN, *(name for _, name in _TTLS)))


class ObservationRow(msgspec.Struct, gc=False, rename="camel"):
    """One observation."""

    id: Any = None
    type: Any = None
    name: Any = None
    start_time: Any = None
    end_time: Any = None
    completion_start_time: Any = None
    provided_model_name: Any = None
    model: Any = None
    usage_details: dict[str, Tokens] | list[Any] | str | float | bool | None = None
    latency: Seconds = None
    time_to_first_token: Seconds = None
    level: Any = None
    status_message: Any = None
    metadata: Any = None


def _tidy(row: ObservationRow) -> None:
    details: Any = row.usage_details
    if isinstance(details, dict) and row.level != "ERROR" and row.type in _GENERATION:
        row.usage_details = {name: token(details[name]) for name in _LAYOUTS[tuple(details)].counted}
    row.latency, row.time_to_first_token = seconds(row.latency), seconds(row.time_to_first_token)


class _Keys(NamedTuple):
    """The keys of usage details by meaning."""

    counted: tuple[str, ...]
    read: tuple[str, ...]
    written: tuple[str, ...]
    ttls: tuple[tuple[str, str], ...]
    output: tuple[str, ...]
    other: tuple[str, ...]
    """Input that is neither fresh text nor cached (audio, images)."""


def _sort(names: Iterable[str]) -> _Keys:
    counted = tuple(name for name in names if name.startswith(_COUNTED))
    present = frozenset(counted)
    return _Keys(
        counted,
        tuple(name for name in _READ if name in present),
        tuple(name for name in _WRITTEN if name in present),
        tuple((ttl, name) for ttl, name in _TTLS if name in present),
        tuple(name for name in counted if name.startswith("output")),
        tuple(name for name in counted if name.startswith("input_") and name not in _CACHE_KEYS),
    )


_LAYOUTS = Layouts(_sort)
_route = Paths(("route",)).first


def _read(row: ObservationRow) -> Reading:
    if row.usage_details is None and row.type is None:
        raise foreign("Langfuse's export")
    reading = Reading(
        ttft=_ttft(row),
        duration=_duration(row),
        at=row.start_time,
        model=row.provided_model_name or row.model,
        group=_group(row),
        request_id=row.id,
    )
    if row.level == "ERROR":
        reading.skip, reading.status = failure_of_text(row.status_message), "error"
    elif row.type not in _GENERATION:
        reading.skip = "not_a_request"
    elif isinstance(row.usage_details, dict):
        _add_counts(reading, row.usage_details)
    return reading


def _add_counts(reading: Reading, usage: Mapping[str, int | None]) -> None:
    keys = _LAYOUTS[tuple(usage)]
    # SDKs send the same number under two spellings: take the largest, not the sum.
    reading.cached, reading.written = _all(usage, keys.read, max), _all(usage, keys.written, max)
    split = tuple([(ttl, tokens) for ttl, name in keys.ttls if (tokens := usage[name])]) if keys.ttls else ()
    if split:
        in_parts = sum(tokens for _, tokens in split)
        reading.written = reading.written or in_parts
        reading.written_by_ttl = split if in_parts <= reading.written else ()
    _add_totals(reading, usage, keys)


def _add_totals(reading: Reading, usage: Mapping[str, int | None], keys: _Keys) -> None:
    fresh, output, total = usage.get("input"), usage.get("output"), usage.get("total")
    if fresh is not None and total is not None and total == fresh + (output or 0):
        reading.prompt, reading.output = fresh, output
        return
    reading.output = _all(usage, keys.output, sum) or output
    if fresh is not None:
        others = _all(usage, keys.other, sum) or 0
        reading.prompt = fresh + others + (reading.cached or 0) + (reading.written or 0)


def _all(
    usage: Mapping[str, int | None], names: tuple[str, ...], into_one: Callable[[list[int]], int]
) -> int | None:
    """The counts under these names as one; None if there are none."""
    if len(names) < 2:
        return usage[names[0]] if names else None
    counts = [count for name in names if (count := usage[name]) is not None]
    return into_one(counts) if counts else None


def _ttft(row: ObservationRow) -> float | None:
    if row.time_to_first_token is not None or row.completion_start_time is None:
        return row.time_to_first_token
    start, first, end = map(timestamp, (row.start_time, row.completion_start_time, row.end_time))
    if start is None or first is None or end is None or not start <= first < end:
        return None
    return first - start


def _duration(row: ObservationRow) -> float | None:
    if row.latency is not None:
        return row.latency
    start, end = timestamp(row.start_time), timestamp(row.end_time)
    return None if start is None or end is None or end < start else end - start


def _group(row: ObservationRow) -> Any:
    metadata = row.metadata
    route = metadata.get("route") if isinstance(metadata, dict) else None
    return (_route(metadata) if isinstance(metadata, str) else route) or row.name


def _looks(sample: Mapping[str, Any]) -> bool:
    return "usageDetails" in sample or ("traceId" in sample and "startTime" in sample and "type" in sample)


LANGFUSE = RowFormat("langfuse", ObservationRow, _read, _looks, tidy=_tidy)
