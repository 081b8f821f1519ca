"""Joins a request's log record with its span, by request id, within bounds of time and number."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import START_OVER, StateError
from kvcache_exporter.model import RequestRecord, Sample, Skipped
from kvcache_exporter.requests.formats.base import Entry
from kvcache_exporter.requests.formats.seen import Seen

Side = Literal["usage", "span"]
_OTHER: Mapping[Side, Side] = {"usage": "span", "span": "usage"}
_RESULTS = "results"
_COMPLETION = re.compile(r"(cmpl-.*)-(\d+)", re.DOTALL)
"""vLLM's id of one prompt of a /v1/completions call, whose response has the id before the number."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """How long, and how many, records may wait for their other half."""

    window_seconds: float = 120.0
    most: int = 20_000


class Joiner:
    """Takes the two halves of a request in any order and gives exactly one record for it.

    One half waits for the other. A half that waits too long, or must make room, becomes a record of its own;
    a half that comes after that is counted as late and gives no record.
    """

    def __init__(self, options: JoinOptions, waiting: Mapping[str, bytes], seen: Mapping[str, bytes]) -> None:
        """`waiting` and `seen` are what the state file holds; raises StateError if they cannot be read."""
        self._options = options
        self._waiting: dict[Side, dict[str, tuple[float, RequestRecord]]] = {"usage": {}, "span": {}}
        self._seen = Seen()
        self._seen.restore(seen)
        self._new: set[tuple[Side, str]] = set()
        self._gone: set[tuple[Side, str]] = set()
        self.results: Counter[str] = Counter()
        """Requests by the catalogue's JOIN_RESULTS, and `evicted` of them before their time."""
        self._restore(waiting)

    def usage(self, record: RequestRecord, now: float) -> list[Entry]:
        """Entries that result from a record of the log; `now` is Unix seconds."""
        return self._take("usage", record.request_id, record, now)

    def span(self, record: RequestRecord, now: float) -> list[Entry]:
        """Entries that result from a span. The first span of a call with several prompts stands for all."""
        part = _COMPLETION.fullmatch(record.request_id)
        if part is None:
            return self._take("span", record.request_id, record, now)
        if int(part[2][:9]):
            return [Skipped("duplicate")]
        return self._take("span", part[1], record, now)

    def expire(self, now: float) -> list[Entry]:
        """Records whose window is over without a match."""
        self._begin(now)
        found: list[Entry] = []
        for side, waiting in self._waiting.items():
            while waiting and next(iter(waiting.values()))[0] <= now - self._options.window_seconds:
                found.append(self._alone(side))
        return found

    def changes(self) -> tuple[dict[str, bytes], set[str], dict[str, bytes], set[str]]:
        """Puts and deletes of what waits, then those of the ids seen, since `committed`."""
        puts = {
            f"{side}:{key}": msgspec.msgpack.encode(self._waiting[side][key][1]) for side, key in self._new
        }
        puts[_RESULTS] = msgspec.msgpack.encode(dict(self.results))
        return puts, {f"{side}:{key}" for side, key in self._gone}, *self._seen.changes()

    def committed(self) -> None:
        """Confirm that the state file holds what `changes` last returned."""
        self._new.clear()
        self._gone.clear()
        self._seen.committed()

    def samples(self, source: str) -> Iterator[Sample]:
        for side, waiting in self._waiting.items():
            yield Sample(c.JOIN_WAITING, (source, side), float(len(waiting)))
        for result in c.JOIN_RESULTS:
            yield Sample(c.JOIN_REQUESTS, (source, result), float(self.results[result]))
        yield Sample(c.JOIN_EVICTIONS, (source,), float(self.results["evicted"]))

    @property
    def size(self) -> int:
        """Records that wait."""
        return sum(map(len, self._waiting.values()))

    def _take(self, side: Side, key: str, record: RequestRecord, now: float) -> list[Entry]:
        if not key:
            self.results[f"{side}_only"] += 1
            return [record]
        other = _OTHER[side]
        if key in self._waiting[side] or not self._seen.add(side, key):
            return [Skipped("duplicate")]
        if key in self._waiting[other]:
            partner = self._remove(other, key)
            self.results["joined"] += 1
            return [_merged(record, partner) if side == "usage" else _merged(partner, record)]
        if self._seen.has(other, key):
            return [Skipped("late")]
        self._waiting[side][key] = (now, record)
        self._new.add((side, key))
        self._gone.discard((side, key))
        return [self._evict()] if self.size > self._options.most else []

    def _evict(self) -> RequestRecord:
        self.results["evicted"] += 1
        oldest = [
            (next(iter(waiting.values()))[0], side) for side, waiting in self._waiting.items() if waiting
        ]
        return self._alone(min(oldest)[1])

    def _alone(self, side: Side) -> RequestRecord:
        """The record that has waited longest."""
        self.results[f"{side}_only"] += 1
        return self._remove(side, next(iter(self._waiting[side])))

    def _remove(self, side: Side, key: str) -> RequestRecord:
        if (side, key) in self._new:
            self._new.discard((side, key))
        else:
            self._gone.add((side, key))
        return self._waiting[side].pop(key)[1]

    def _restore(self, saved: Mapping[str, bytes]) -> None:
        try:
            for name, data in saved.items():
                prefix, _, key = name.partition(":")
                if name == _RESULTS:
                    self.results.update(msgspec.msgpack.decode(data, type=dict[str, int]))
                else:
                    side: Side = "span" if prefix == "span" else "usage"
                    record = msgspec.msgpack.decode(data, type=RequestRecord)
                    self._waiting[side][key] = (math.inf, record)
        except msgspec.DecodeError as error:
            raise StateError(
                f"the saved requests that wait for their span cannot be read ({error}); {START_OVER}"
            ) from error
        self._restored = bool(saved)

    def _begin(self, now: float) -> None:
        """After a restart, waiting records get a whole new window: senders held back the other half, too."""
        if self._restored:
            self._restored = False
            for side, waiting in self._waiting.items():
                self._waiting[side] = {key: (min(at, now), record) for key, (at, record) in waiting.items()}


def _merged(usage: RequestRecord, span: RequestRecord) -> RequestRecord:
    """The log's record completed from the span; token counts all come from one of the two."""
    counts = span if usage.cached_tokens is None and span.cached_tokens is not None else usage
    return usage._replace(
        prompt_tokens=counts.prompt_tokens,
        cached_tokens=counts.cached_tokens,
        written_tokens=counts.written_tokens,
        output_tokens=span.output_tokens if usage.output_tokens is None else usage.output_tokens,
        ttft_seconds=span.ttft_seconds if usage.ttft_seconds is None else usage.ttft_seconds,
        duration_seconds=span.duration_seconds if usage.duration_seconds is None else usage.duration_seconds,
        timestamp=span.timestamp if usage.timestamp is None else usage.timestamp,
    )
