"""Converts records to columns, so that the ledger counts many requests at once with sums over columns."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Aggregate, RequestColumns, RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import Entry

_SHARED = RequestColumns._fields[:5]
Other = Aggregate | Skipped | RecordError


def in_columns(entries: Iterable[Entry | RequestColumns]) -> Iterator[RequestColumns | Other]:
    """The same entries with all requests in columns, each group in the order of its log; others follow."""
    batches: dict[tuple[object, ...], list[RequestRecord]] = defaultdict(list)
    others: list[Other] = []
    for entry in entries:
        if type(entry) is RequestRecord:
            batches[entry[7:10] + entry[13:15]].append(entry)  # group and contract
        elif type(entry) is RequestColumns:
            yield from map(_columns, batches.values())
            batches.clear()
            yield entry
        else:
            others.append(entry)  # type: ignore[arg-type]  # the only other kinds of Entry
    yield from map(_columns, batches.values())
    yield from others


def _columns(records: list[RequestRecord]) -> RequestColumns:
    """Columns of records with the same provider, model, group and contract."""
    by_name = dict(zip(RequestRecord._fields, zip(*records, strict=True), strict=True))
    *names, _ = RequestColumns._fields
    values = [by_name[name][0] if name in _SHARED else by_name[name] for name in names]
    return RequestColumns._make([*values, by_name["timestamp"]])
