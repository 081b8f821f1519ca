"""Langfuse's observations: usage keys are disjoint, and the total tells where an SDK sent others."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.rows import Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.statuses import failure_of_text
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import seconds, token

_READ = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens", "input_cache_read_tokens")
_WRITTEN = ("input_cache_creation", "cache_creation_input_tokens", "input_cache_write")
_TTLS = (("5m", "input_cache_creation_5m"), ("1h", "input_cache_creation_1h"))
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
    usage_details: Any = None
    latency: Any = None
    time_to_first_token: Any = None
    level: Any = None
    status_message: Any = None
    metadata: Any = None


_route = Paths(("route",)).first


def _read(row: ObservationRow) -> Reading:
    if row.usage_details is None and row.type is None:
        raise foreign("Langfuse's export")
    start, end = timestamp(row.start_time), timestamp(row.end_time)
    reading = Reading(
        ttft=_ttft(row, start, end),
        duration=_duration(row, start, end),
        at=start,
        model=row.provided_model_name or row.model,
        group=_group(row),
        request_id=row.id,
    )
    if row.level == "ERROR":
        reading.skip, reading.status = failure_of_text(row.status_message), "error"
    elif row.type not in (None, "GENERATION"):
        reading.skip = "not_a_request"
    elif isinstance(row.usage_details, dict):
        _add_counts(reading, row.usage_details)
    return reading


def _add_counts(reading: Reading, details: dict[str, Any]) -> None:
    usage = {name: token(value) for name, value in details.items() if name.startswith(_COUNTED)}
    # SDKs that know two spellings send the same number under both: the largest, not the sum.
    reading.cached, reading.written = _largest(usage, _READ), _largest(usage, _WRITTEN)
    split = tuple((ttl, tokens) for ttl, name in _TTLS if (tokens := usage.get(name)))
    if split:
        in_parts = sum(tokens for _, tokens in split)
        reading.written = reading.written or in_parts
        reading.written_by_ttl = split if in_parts <= reading.written else ()
    _add_totals(reading, usage)


def _add_totals(reading: Reading, usage: dict[str, int | None]) -> None:
    fresh, output, total = usage.get("input"), usage.get("output"), usage.get("total")
    if fresh is not None and total is not None and total == fresh + (output or 0):
        reading.prompt, reading.output = fresh, output
        return
    every_output = sum(v or 0 for name, v in usage.items() if name.startswith("output"))
    others = (v or 0 for k, v in usage.items() if k.startswith("input_") and k not in _CACHE_KEYS)
    reading.output = None if output is None and not every_output else every_output
    if fresh is not None:
        reading.prompt = fresh + sum(others) + (reading.cached or 0) + (reading.written or 0)


def _largest(usage: Mapping[str, int | None], names: tuple[str, ...]) -> int | None:
    counts = [count for name in names if (count := usage.get(name)) is not None]
    return max(counts) if counts else None


def _ttft(row: ObservationRow, start: float | None, end: float | None) -> float | None:
    measured = seconds(row.time_to_first_token)
    if measured is not None:
        return measured
    first = timestamp(row.completion_start_time)
    if start is None or first is None or end is None or not start <= first < end:
        return None
    return first - start


def _duration(row: ObservationRow, start: float | None, end: float | None) -> float | None:
    measured = seconds(row.latency)
    if measured is not None or start is None or end is None or end < start:
        return measured
    return end - start


def _group(row: ObservationRow) -> Any:
    metadata = row.metadata
    route = metadata.get("route") if isinstance(metadata, dict) else None
    return (_route(metadata) if isinstance(metadata, str) else route) or row.name


def _looks(sample: Mapping[str, Any]) -> bool:
    return "usageDetails" in sample or ("traceId" in sample and "startTime" in sample and "type" in sample)


LANGFUSE = RowFormat("langfuse", ObservationRow, _read, _looks)
