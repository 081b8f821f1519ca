"""Usage objects in an envelope, as gateways log them, or in raw API bodies, for any provider.

A format of this family is a row Struct with the type of its usage object, and a function that extracts the
counts. If counts or names are in other places, its `unfold` moves them to their fields of the row.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestColumns, RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller, Labels
from kvcache_exporter.requests.formats.lines import FAILURES, LineDecoder
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT, Caching
from kvcache_exporter.requests.formats.statuses import failure_of_error, failure_of_status, status_word
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.usual import CountColumns, Counted, Counts, Key, batches, one_by_one
from kvcache_exporter.requests.formats.values import MAX_LABEL, Milliseconds, label, milliseconds, refusal

_STATUSES = 64
_LIST = "list"
"""The `object` of bodies of embeddings, which have a usage object, too."""
_make = tuple.__new__


class Envelope(msgspec.Struct, gc=False):
    """Fields around the usage object; `row_of` gives `usage` its type."""

    ts: Any = None
    request_id: Any = None
    id: Any = None
    object: Any = None
    type: Any = None
    created: Any = None
    provider: Any = None
    model: Any = None
    route: Any = None
    group: Any = None
    status: Any = None
    stream: Any = None
    ttft_ms: Milliseconds = None
    latency_ms: Milliseconds = None
    error: Any = None
    service_tier: Any = None
    usage: Any = msgspec.UNSET


def row_of(usage: type[msgspec.Struct], envelope: type[Envelope] = Envelope) -> type[Envelope]:
    """The envelope with this type of usage object, or any other JSON in its place."""
    field = ("usage", usage | list[Any] | str | float | bool | msgspec.UnsetType | None, msgspec.UNSET)
    return cast("type[Envelope]", msgspec.defstruct(envelope.__name__, [field], bases=(envelope,), gc=False))


@dataclass(slots=True, eq=False, kw_only=True)
class EnvelopeFormat:
    """A format of one provider's or engine's usage objects."""

    name: str
    row: type[Envelope]
    usage: type[msgspec.Struct | Counted]
    counts: Callable[[Any], Counts]
    """Extracts the counts from an instance of `usage`."""
    looks: Callable[[Mapping[str, Any]], bool]
    """Whether a decoded entry looks like this format."""
    provider: str
    unfold: Callable[[Any], Any] | None = None
    """Returns the envelope of a row, which it may change."""
    all_counts: Callable[[Sequence[Any]], CountColumns] | None = None
    """`counts` of many at once, where that costs less."""
    diagnosis: Callable[[Any], tuple[str, int] | None] | None = None
    """Extracts the provider's reason for a cache miss, and the tokens missed."""
    tiers: Callable[[Sequence[Any]], Sequence[str]] | None = None
    """The price tiers of rows, see `tiers`."""
    contract: Caching = UNKNOWN_CONTRACT
    """For providers that are not in the table of minimums.py."""

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample looks like this format."""
        return self.looks(sample)

    def claims(self, provider: str) -> bool:
        """Whether the provider's name alone identifies this format."""
        usage = {"prompt_tokens": 1}
        named = self.looks({"provider": provider, "usage": usage})
        return named and (provider == self.provider or not self.looks({"usage": usage}))

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return EnvelopeDecoder(self, options)


class EnvelopeDecoder(LineDecoder):
    """Decodes envelopes and raw bodies of one format."""

    def __init__(self, format_: EnvelopeFormat, options: DecoderOptions) -> None:
        super().__init__(format_.row)
        self._usage = format_.usage
        self._counts = format_.counts
        self._all_counts = format_.all_counts or one_by_one(format_.counts)
        self._unfold, self._diagnosis, self._tiers = format_.unfold, format_.diagnosis, format_.tiers
        labeller = Labeller(options, format_.provider, format_.contract)
        self._known, self._labels = labeller.known, labeller.labels
        self._group_by = group_reader(options.group_by)
        self._fine: set[Any] = {200, None}

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """As `decode`, without making a record of each usual request."""
        return self._usual(lines) or [*self.decode(lines)]

    def _usual(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns] | None:
        """None if some request is unusual: then all become records, to keep their order."""
        usual: dict[Key, list[Envelope]] = defaultdict(list)
        others: list[Entry] = []
        decode_row, unfold, expected, fine = self._decode_row, self._unfold, self._usage, self._fine
        for line in lines:
            seen = len(others)
            try:
                row = decode_row(line)
                if unfold is not None:
                    row = unfold(row)
                if (
                    type(row.usage) is expected
                    and row.object != _LIST
                    and (row.status in fine or self._is_fine(row.status))
                ):
                    group = (row.route or row.group) if self._group_by is None else self._group_by(line)
                    usual[row.provider, row.model, group].append(row)
                    continue
                self._request(row, line, others)
            except FAILURES as failure:
                self._salvage(line, failure, others, 0)
            except TypeError:  # a list or an object where a name should be
                return None
            if any(type(entry) is RequestRecord for entry in others[seen:]):
                return None
        made = batches(usual, self._labels, self._all_counts, self._diagnosis, self._tiers)
        return None if made is None else [*made, *others]

    def _is_fine(self, status: Any) -> bool:
        """Whether the status is not a failure; words are cached."""
        if failure_of_status(status):
            return False
        if type(status) is str and len(self._fine) < _STATUSES:
            self._fine.add(status)
        return True

    def _take(self, row: Envelope, line: bytes, entries: list[Entry]) -> None:
        self._request(row if self._unfold is None else self._unfold(row), line, entries)

    def _request(self, row: Envelope, line: bytes, entries: list[Entry]) -> None:
        """Runs for every request, so the most common types are handled inline."""
        group = (row.route or row.group) if self._group_by is None else self._group_by(line)
        try:
            labels = self._known[row.provider, row.model, group]
        except (KeyError, TypeError):
            labels = self._labels(row.provider, row.model, group)
        usage, status = row.usage, row.status
        if row.object == _LIST:
            entries.append(Skipped("not_a_request", "", *labels[:3], timestamp=timestamp(row.ts)))
            return
        if type(usage) is not self._usage or status != 200:
            other = self._without_counts(row, labels)
            if other is not None:
                entries.append(other)
                return
            status = 200 if status is None else status
        prompt, cached, written, output, by_ttl = self._counts(usage)
        if prompt is None or (cached or 0) + (written or 0) > prompt:
            raise refusal(prompt)
        provider, model_name, named, granule, minimum = labels
        ttft, duration, at, request_id = row.ttft_ms, row.latency_ms, row.ts, row.request_id
        ttft = ttft / 1e3 if type(ttft) is float and 0 <= ttft <= 1e9 else milliseconds(ttft)
        duration = (
            duration / 1e3 if type(duration) is float and 0 <= duration <= 1e9 else milliseconds(duration)
        )
        if type(request_id) is not str or len(request_id) > MAX_LABEL:
            request_id = _id(row)
        fields = (
            prompt,
            cached,
            written,
            output,
            None if row.stream is False else ttft,
            duration,
            timestamp(row.created if at is None else at),
            provider,
            model_name,
            named,
            "ok" if status == 200 else status_word(status),
            request_id,
            by_ttl,
            granule,
            minimum,
            None if self._diagnosis is None else self._diagnosis(row),
            "" if self._tiers is None else self._tiers((row,))[0],
        )
        entries.append(_make(RequestRecord, fields))  # past the Python __new__ of named tuples

    def _without_counts(self, row: Envelope, labels: Labels) -> Entry | None:
        """The entry of a row without usage or with an unusual status; None for a finished request."""
        has_usage = type(row.usage) is self._usage
        reason = failure_of_status(row.status)
        if row.error and not has_usage and reason in {"", "failed"}:
            reason = failure_of_error(row.error)
        at = timestamp(row.ts if row.ts is not None else row.created)
        if reason:
            return Skipped(reason, label(row.status), *labels[:3], timestamp=at)
        if has_usage:
            return None
        if row.usage is None and row.status is not None:  # a stream whose usage was not requested
            return _uncounted(row, labels, at)
        if is_event(row.type) or row.object == "chat.completion.chunk":
            return Skipped("not_a_request", "", *labels[:3], timestamp=at)
        raise RecordError("no_usage", "the record has no usage object")


def _uncounted(row: Envelope, labels: Labels, at: float | None) -> RequestRecord:
    """A finished request whose tokens are not in the log."""
    provider, model_name, group, granule, minimum = labels
    return RequestRecord(
        prompt_tokens=None,
        cached_tokens=None,
        ttft_seconds=None if row.stream is False else milliseconds(row.ttft_ms),
        duration_seconds=milliseconds(row.latency_ms),
        timestamp=at,
        provider=provider,
        model_name=model_name,
        group=group,
        status=status_word(row.status),
        request_id=_id(row),
        granule=granule,
        minimum_tokens=minimum,
    )


def measured(row: Envelope, ttft: float | None, duration: float | None = None) -> None:
    """Fill in the server's measurements, in seconds, if the log has no times of a client.

    A server knows the time to first token of a reply that was not streamed, too.
    """
    if ttft is not None and (row.ttft_ms is None or row.stream is False):
        row.ttft_ms, row.stream = ttft * 1e3, None
    if duration is not None and row.latency_ms is None:
        row.latency_ms = duration * 1e3


def _id(row: Envelope) -> str:
    return label(row.request_id or row.id)


def is_event(kind: Any) -> bool:
    """Whether the `type` of an object is that of an event within a streamed reply."""
    return isinstance(kind, str) and (
        kind == "ping" or kind.startswith(("message_", "content_block_", "response."))
    )
