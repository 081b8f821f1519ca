"""Logs wrapped by container runtimes and log shippers: unwraps the lines, then decodes them as `auto`."""

from collections.abc import Mapping, Sequence

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestColumns, RequestRecord, Skipped
from kvcache_exporter.requests.formats.auto import Auto
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.values import label
from kvcache_exporter.requests.framing import OVERFLOW, Framer


class CarrierDecoder:
    """Decodes the log inside; `group_by` may also name a field of the shipper's (`kubernetes.pod_name`).

    The wrapping of container runtimes was already removed by the reader, which also keeps partial lines; this
    decoder has no state of them.
    """

    def __init__(self, options: DecoderOptions, inner: Auto) -> None:
        self._framer = Framer()
        self._inner = inner.decoder(options)
        self._outer = group_reader(options.group_by)

    @property
    def chosen(self) -> str:
        """Name of the format inside; "" until a line is recognised."""
        return self._inner.chosen

    def decode(self, lines: Sequence[bytes]) -> list[Entry]:
        """Entries that these lines finish."""
        entries: list[Entry] = []
        for record in self._framer.feed(list(lines)):
            if record is OVERFLOW:
                entries.append(RecordError("too_long", "the parts of the line are too long together"))
                continue
            entries += [self._seen_from_outside(entry, record) for entry in self._inner.decode([record])]
        return entries

    def _seen_from_outside(self, entry: Entry, record: bytes) -> Entry:
        if isinstance(entry, RecordError):
            # Containers also print plain text; only a line that starts like a record is a broken one.
            text = entry.reason == "not_json" and record.lstrip()[:1] not in (b"{", b"[")
            return Skipped("not_a_request") if text else entry
        if self._outer is None or not isinstance(entry, RequestRecord) or entry.group:
            return entry
        return entry._replace(group=label(self._outer(record)))

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """Entries that these lines finish."""
        return [*self.decode(lines)]

    def flush(self) -> list[Entry]:
        """Entries that the format inside held back."""
        return self._inner.flush()

    def snapshot(self) -> bytes:
        """The snapshot of the format inside."""
        return self._inner.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Raises StateError if the snapshot is not one of the format inside."""
        self._inner.restore(snapshot)


class Carrier:
    """A kind of wrapping; its lines count as those of the format inside."""

    def __init__(self, name: str, inner: Auto) -> None:
        self.name = name
        self._inner = inner

    def recognises(self, sample: Mapping[str, object]) -> bool:  # noqa: ARG002
        """False: `auto` itself looks inside and chooses the format that it finds there."""
        return False

    def decoder(self, options: DecoderOptions) -> CarrierDecoder:
        """A decoder that has not yet seen what is inside."""
        return CarrierDecoder(options, self._inner)
