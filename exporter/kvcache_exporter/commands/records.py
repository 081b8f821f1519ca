"""`records`: one normalised record per line of a usage log."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator

from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.commands.report import add_format_arguments, decoded, format_advice
from kvcache_exporter.errors import KVCacheError, RecordError
from kvcache_exporter.model import Aggregate, RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import Entry
from kvcache_exporter.requests.outcome import FullHit, classify


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "records",
        help="print the normalised records of a usage log",
        epilog="Example: kvcache-exporter records usage.jsonl.gz --json",
        description="Prints one normalised request record per line. Lines without one are counted by reason "
        "on standard error; if no line has one, the exit code is 1.",
    )
    parser.add_argument("file", metavar="FILE", help="a usage log, plain or gzipped, or - for standard input")
    add_format_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per record")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    failed, skipped, shown = Counter[str](), Counter[str](), 0
    show = _json_line if arguments.json else _text_line
    for entries in decoded(arguments.file, arguments):
        failed.update(entry.reason for entry in entries if isinstance(entry, RecordError))
        skipped.update(entry.reason for entry in entries if isinstance(entry, Skipped))
        for record in _records(entries):
            print(show(arguments.file, record))
            shown += 1
    sys.stdout.flush()
    if failed or skipped:
        counts = ", ".join(f"{count} x {reason}" for reason, count in (failed + skipped).most_common())
        print(f"{arguments.file}: no record: {counts}", file=sys.stderr)
    if failed and not (shown or skipped):
        raise KVCacheError(f"{arguments.file}: no request record found; {format_advice(arguments)}")
    return 0


def _records(entries: list[Entry]) -> Iterator[RequestRecord | Aggregate]:
    return (entry for entry in entries if isinstance(entry, RequestRecord | Aggregate))


def _fields(source: str, record: RequestRecord | Aggregate) -> dict[str, object]:
    return {
        "timestamp": record.timestamp,
        "source": source,
        "provider": record.provider,
        "model_name": record.model_name,
        "group": record.group,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "written_tokens": record.written_tokens,
        "uncached_tokens": record.uncached_tokens,
        "output_tokens": record.output_tokens,
        **(_aggregate_fields(record) if isinstance(record, Aggregate) else _request_fields(record)),
    }


def _aggregate_fields(aggregate: Aggregate) -> dict[str, object]:
    """An aggregate is not a request: it has no outcome and no times of its own."""
    return {
        "ttft_seconds": None,
        "duration_seconds": None,
        "outcome": "aggregate",
        "status": "ok",
        "requests": aggregate.requests,
    }


def _request_fields(record: RequestRecord) -> dict[str, object]:
    outcome = classify(
        record.prompt_tokens, record.cached_tokens, record.granule, record.minimum_tokens, FullHit()
    )
    return {
        "ttft_seconds": _microseconds(record.ttft_seconds),
        "duration_seconds": _microseconds(record.duration_seconds),
        "outcome": outcome,
        "status": record.status,
    }


def _microseconds(seconds: float | None) -> float | None:
    """Rounded to microseconds, beyond which differences of Unix times are noise."""
    return None if seconds is None else round(seconds, 6)


def _json_line(source: str, record: RequestRecord | Aggregate) -> str:
    return json.dumps(_fields(source, record))


def _text_line(source: str, record: RequestRecord | Aggregate) -> str:
    shown = {key: value for key, value in _fields(source, record).items() if value not in (None, "", source)}
    return " ".join(f"{key}={value}" for key, value in shown.items())
