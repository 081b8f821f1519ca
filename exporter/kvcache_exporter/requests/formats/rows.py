"""Logs of gateways and services with one object per request and keys of their own.

A format of this family is a row Struct and a function that reads it; the rest is common.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestColumns, RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller, Labels
from kvcache_exporter.requests.formats.lines import FAILURES, LineDecoder
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT, Caching
from kvcache_exporter.requests.formats.statuses import ending
from kvcache_exporter.requests.formats.timestamps import timestamp, timestamps
from kvcache_exporter.requests.formats.values import label, refusal

_make = tuple.__new__
_EMBEDS = re.compile(r"embed|rerank", re.IGNORECASE)
Loose = list[Any] | str | float | bool | None
"""Any other JSON in place of an object, so that only that object is ignored."""


class Reading(msgspec.Struct, gc=False):
    """The request of one row; prompt tokens include cache reads and writes."""

    prompt: int | None = None
    cached: int | None = None
    written: int | None = None
    output: int | None = None
    written_by_ttl: tuple[tuple[str, int], ...] = ()
    ttft: float | None = None
    duration: float | None = None
    at: Any = None
    """Start of the request, in any form that `timestamp` accepts."""
    provider: Any = None
    model: Any = None
    group: Any = None
    status: Any = None
    """HTTP code or word; a failed request has no record."""
    ending: str = ""
    """An unusual end of a request that counts nevertheless (`cancelled`)."""
    request_id: Any = None
    tier: str = ""
    skip: str = ""
    """Reason to skip the row, if it is not the status."""

    def leave_out_embeddings(self) -> None:
        """Skip embeddings and rankings: they generate nothing, so no prefix is cached."""
        if not self.output and not self.skip and type(self.model) is str and _EMBEDS.search(self.model):
            self.skip = "not_a_request"

    def is_request(self) -> bool:
        """Whether `entry` returns a record."""
        status, prompt = self.status, self.prompt
        # `ending` returns the same for None and 200, which most lines have.
        if self.skip or (status is not None and status != 200 and ending(status)[0]):
            return False
        return prompt is None or (self.cached or 0) + (self.written or 0) <= prompt

    def entry(self, labels: Labels) -> Entry:
        """The record, or why there is none. Raises RecordError for impossible counts."""
        provider, model_name, group, granule, minimum = labels
        failure, word = ending(self.status)
        reason = self.skip or failure
        if reason:
            return Skipped(reason, label(self.status), provider, model_name, group, timestamp(self.at))
        known = self.prompt is not None
        if self.prompt is not None and (self.cached or 0) + (self.written or 0) > self.prompt:
            raise refusal(self.prompt)
        fields = (
            self.prompt,
            self.cached if known else None,
            self.written if known else None,
            self.output,
            self.ttft,
            self.duration,
            timestamp(self.at),
            provider,
            model_name,
            group,
            self.ending or word,
            label(self.request_id),
            self.written_by_ttl if known else (),
            granule,
            minimum,
            None,
            self.tier,
        )
        return _make(RequestRecord, fields)  # past the Python __new__ of named tuples


@dataclass(slots=True, eq=False)
class RowFormat:
    """A format whose rows are independent of each other."""

    name: str
    row: type[msgspec.Struct]
    read: Callable[[Any], Reading]
    """Raises RecordError("no_usage") for rows of another format."""
    looks: Callable[[Mapping[str, Any]], bool]
    """Whether a decoded entry looks like this format."""
    provider: str = ""
    contract: Caching = UNKNOWN_CONTRACT
    tidy: Callable[[Any], None] | None = None
    """Gives a row whose fields hold any JSON the types of `row`; lines that do not fit are read with it."""

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample looks like this format."""
        return self.looks(sample)

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return RowDecoder(self, options)


def tolerant(
    decode: Callable[[bytes], Any], row: type[msgspec.Struct], tidy: Callable[[Any], None]
) -> Callable[[bytes], Any]:
    """A decoder of `row` that reads any object.

    So msgspec converts what usual lines hold, which costs next to nothing. Where the fields of a line have
    other types they take any JSON, and `tidy` is there to bring it into the types of `row` as far as it can.
    """
    fields = [
        (field.name, Any, msgspec.field(default=None, name=field.encode_name))
        for field in msgspec.structs.fields(row)
    ]
    decode_loosely = msgspec.json.Decoder(msgspec.defstruct(row.__name__, fields, gc=False)).decode

    def decoded(line: bytes) -> Any:
        try:
            return decode(line)
        except msgspec.ValidationError:
            loose = decode_loosely(line)
        tidy(loose)
        return loose

    return decoded


class ReadingDecoder(LineDecoder):
    """Decodes rows with one reading each; a format defines `_reading`."""

    def _reading(self, row: Any, line: bytes) -> tuple[Reading, Labels]:
        """May raise RecordError instead."""
        raise NotImplementedError

    def _take(self, row: Any, line: bytes, entries: list[Entry]) -> None:
        reading, labels = self._reading(row, line)
        entries.append(reading.entry(labels))

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """As `decode`, without making a record of each request."""
        requests: dict[Labels, list[Reading]] = defaultdict(list)
        others: list[Entry] = []
        decode_row, read = self._decode_row, self._reading
        for line in lines:
            seen = len(others)
            try:
                reading, labels = read(decode_row(line), line)
                if reading.is_request():
                    requests[labels].append(reading)
                    continue
                others.append(reading.entry(labels))
            except FAILURES as failure:
                self._salvage(line, failure, others, 0)
            if any(type(entry) is RequestRecord for entry in others[seen:]):
                return [*self.decode(lines)]  # all as records, so that they stay in their order
        return [*(_columns(labels, found) for labels, found in requests.items()), *others]


def _columns(labels: Labels, readings: Sequence[Reading]) -> RequestColumns:
    return RequestColumns(
        *labels,
        [r.prompt for r in readings],
        [None if r.prompt is None else r.cached for r in readings],
        [None if r.prompt is None else r.written for r in readings],
        [r.output for r in readings],
        [r.ttft for r in readings],
        [r.duration for r in readings],
        [() if r.prompt is None else r.written_by_ttl for r in readings],
        (),
        tiers if any(tiers := [r.tier for r in readings]) else (),
        timestamps([r.at for r in readings]),
    )


class RowDecoder(ReadingDecoder):
    """Decodes rows of one format."""

    def __init__(self, format_: RowFormat, options: DecoderOptions) -> None:
        super().__init__(format_.row)
        if format_.tidy is not None:
            self._decode_row = tolerant(self._decode_row, format_.row, format_.tidy)
        self._read = format_.read
        self._labels = Labeller(options, format_.provider, format_.contract).labels
        self._group_by = group_reader(options.group_by)

    def _reading(self, row: Any, line: bytes) -> tuple[Reading, Labels]:
        reading = self._read(row)
        reading.leave_out_embeddings()
        group = reading.group if self._group_by is None else self._group_by(line)
        return reading, self._labels(reading.provider, reading.model, group)


def foreign(name: str) -> RecordError:
    """The error that `read` raises for a row of another log."""
    return RecordError("no_usage", f"the entry is none of {name}")
