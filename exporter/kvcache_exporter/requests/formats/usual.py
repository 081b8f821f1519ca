"""Turns a batch of usual requests into columns without making a record of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, gt
from typing import Any, NamedTuple

from kvcache_exporter.model import RequestColumns
from kvcache_exporter.requests.formats.labels import Labels
from kvcache_exporter.requests.formats.timestamps import timestamps
from kvcache_exporter.requests.formats.values import milliseconds

Counts = tuple[int | None, int | None, int | None, int | None, tuple[tuple[str, int], ...]]
"""Prompt (reads and writes included), cached, written and output tokens, and written tokens by TTL."""
CountColumns = Iterable[Sequence[Any]]
"""The same of many requests: five columns."""


class Counted(NamedTuple):
    """Usage assembled by an `unfold`, for formats without a usage object."""

    prompt: int | None
    cached: int | None
    written: int | None = None
    output: int | None = None
    by_ttl: tuple[tuple[str, int], ...] = ()


def as_counted(usage: Counted) -> Counts:
    """The counts as `unfold` assembled them."""
    return usage


def of_two_ttls(written: int, hour: int) -> tuple[tuple[str, int], ...]:
    """Written tokens by TTL: so many for an hour, the rest for 5 minutes."""
    if not hour:
        return (("5m", written),)
    return (("5m", written - hour), ("1h", hour)) if written > hour else (("1h", hour),)


def one_by_one(counts: Callable[[Any], Counts]) -> Callable[[Sequence[Any]], CountColumns]:
    """The counts of many requests, by a function for one."""
    return lambda usages: zip(*map(counts, usages), strict=True)


Key = tuple[Any, Any, Any]
"""Provider, model and group as written in the log."""


def batches(
    usual: Mapping[Key, Sequence[Any]],
    labels: Callable[[Any, Any, Any], Labels],
    counts: Callable[[Sequence[Any]], CountColumns],
    diagnosis: Callable[[Any], tuple[str, int] | None] | None,
    tiers: Callable[[Sequence[Any]], Sequence[str]] | None,
) -> list[RequestColumns] | None:
    """Envelopes by key as columns; None if a count is invalid, or if two keys may be one group."""
    named = [labels(*key) for key in usual]
    plain = all(value is None or type(value) is str for key in usual for value in key)
    if not plain or len(set(named)) < len(named):
        return None
    made = [
        _columns(rows, own, counts, diagnosis, tiers) for rows, own in zip(usual.values(), named, strict=True)
    ]
    return None if None in made else [columns for columns in made if columns is not None]


def _columns(
    rows: Sequence[Any],
    labels: Labels,
    counts: Callable[[Sequence[Any]], CountColumns],
    diagnosis: Callable[[Any], tuple[str, int] | None] | None,
    tiers: Callable[[Sequence[Any]], Sequence[str]] | None,
) -> RequestColumns | None:
    prompt, cached, written, output, by_ttl = counts([row.usage for row in rows])
    if None in prompt or any(map(gt, _sums(cached, written), prompt)):
        return None
    ttft = _seconds([row.ttft_ms for row in rows])
    return RequestColumns(
        *labels,
        prompt,
        cached,
        written,
        output,
        [None if row.stream is False else seconds for row, seconds in zip(rows, ttft, strict=True)],
        _seconds([row.latency_ms for row in rows]),
        by_ttl,
        () if diagnosis is None else list(map(diagnosis, rows)),
        () if tiers is None or not any(own := tiers(rows)) else own,
        timestamps([row.created if row.ts is None else row.ts for row in rows]),
    )


def _sums(cached: Sequence[int | None], written: Sequence[int | None]) -> Iterable[int]:
    """Tokens read and written together."""
    read = [tokens or 0 for tokens in cached] if None in cached else cached
    return map(add, read, [tokens or 0 for tokens in written]) if any(written) else read  # type: ignore[return-value]  # just looked


def _seconds(values: Sequence[Any]) -> list[float | None]:
    """Converts milliseconds; the most common types need no function call."""
    return [v / 1e3 if type(v) is float and 0 <= v <= 1e9 else milliseconds(v) for v in values]
