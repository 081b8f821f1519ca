"""`report`: the four questions answered from log files alone."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.commands.progress import Progress
from kvcache_exporter.commands.report_text import report_text
from kvcache_exporter.config.document import did_you_mean, quote
from kvcache_exporter.config.source_sections import MOST_GRANULE
from kvcache_exporter.errors import KVCacheError, RecordError
from kvcache_exporter.requests.bands import Bands
from kvcache_exporter.requests.files import read_lines
from kvcache_exporter.requests.formats import FORMATS, get_format
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry, Format
from kvcache_exporter.requests.formats.grouping import template_problem
from kvcache_exporter.requests.formats.seen import Seen
from kvcache_exporter.requests.prices import load_prices
from kvcache_exporter.requests.report import Report

_NAMES = sorted(form.name for form in FORMATS if form.name != "custom")


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "report",
        help="answer the four questions from usage logs alone",
        epilog="Example: kvcache-exporter report usage.jsonl.gz --group-by metadata.route",
        description="Reads whole log files and answers the four questions: token- and request-weighted hit "
        "rates, exact TTFT quantiles by outcome, tokens written and read back, and the coldest five minutes; "
        "then the groups, those with the most uncached tokens first.",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a usage log, plain or gzipped, or - for standard input"
    )
    add_format_arguments(parser)
    parser.add_argument(
        "--prices",
        type=Path,
        metavar="F",
        help="a price table with LiteLLM's field names; adds costs and what the cache saved",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        type=_format,
        default="auto",
        metavar="F",
        help=f"one of {', '.join(_NAMES)} (default auto)",
    )
    parser.add_argument(
        "--group-by",
        default="",
        type=_group_by,
        metavar="P",
        help="group requests by a field, given as a dotted path or as a template: {team}/{metadata.route}",
    )
    parser.add_argument(
        "--granule",
        type=_granule,
        default=0,
        metavar="N",
        help="tokens that the engine caches at a time, if not the default of its kind (vLLM 16)",
    )
    parser.add_argument(
        "--length-bands",
        default=(),
        type=_length_bands,
        metavar="N,N",
        help="split every group at these prompt lengths in tokens, such as 1024,8192",
    )


def _format(text: str) -> str:
    if text not in _NAMES:
        raise argparse.ArgumentTypeError(
            f"unknown format {quote(text)}{did_you_mean(text, _NAMES) or '; --help lists them'}"
        )
    return text


def _group_by(text: str) -> str:
    if problem := template_problem(text):
        raise argparse.ArgumentTypeError(problem)
    return text


def _granule(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_GRANULE:
        raise argparse.ArgumentTypeError(f"found {quote(text)}, expected tokens from 1 to {MOST_GRANULE}")
    return int(text)


def _length_bands(text: str) -> tuple[int, ...]:
    edges = [int(edge) for edge in text.split(",") if edge.isdecimal()]
    if not edges or edges != sorted(set(edges)) or len(edges) != text.count(",") + 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected whole numbers in rising order: 1024,8192")
    return tuple(edges)


def run(arguments: argparse.Namespace) -> int:
    report, seen = Report(prices=load_prices(arguments.prices) if arguments.prices else None), Seen()
    for file in arguments.files:
        with Progress(file) as progress:
            for entries in decoded(file, arguments, progress.update, seen):
                report.add(entries)
    if not report.totals.requests and not report.totals.aggregates:
        raise KVCacheError(_nothing(arguments, report))
    if arguments.group_by and report.groups.keys() == {""}:
        print(f"--group-by {arguments.group_by}: no entry has such a field", file=sys.stderr)
    if arguments.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print("\n".join(report_text(report)))
    return 0


def decoded(
    file: str,
    arguments: argparse.Namespace,
    progress: Callable[[int, int], None] | None = None,
    seen: Seen | None = None,
) -> Iterator[list[Entry]]:
    """Entries of a whole file in batches; says on standard error which format `auto` chose.

    Files that share `seen` count a request that stands in several of them once.
    """
    form: Format = get_format(arguments.format)
    options = DecoderOptions(
        group_by=arguments.group_by, granule=arguments.granule, seen=Seen() if seen is None else seen
    )
    decoder = form.decoder(options)
    bands = Bands(arguments.length_bands)
    too_long: list[Entry] = []
    for lines in read_lines(file, progress, lambda: too_long.append(RecordError("too_long"))):
        yield bands.apply(decoder.decode(lines))
    yield too_long
    yield bands.apply(decoder.flush())
    if chosen := getattr(decoder, "chosen", ""):
        others = ", ".join(sorted(getattr(decoder, "also", ())))
        also = f"; some entries have format {others}" if others else ""
        print(f"{file}: format {chosen}{also}", file=sys.stderr)


def _nothing(arguments: argparse.Namespace, report: Report) -> str:
    reasons = ", ".join(f"{n} x {reason}" for reason, n in report.failures.most_common())
    if not reasons:
        return f"{', '.join(arguments.files)}: empty, so there is nothing to report"
    return f"{', '.join(arguments.files)}: no request record found ({reasons}); {format_advice(arguments)}"


def format_advice(arguments: argparse.Namespace) -> str:
    """What to do about a file without any record."""
    if arguments.format == "auto":
        return "no known format fits; name one with --format (docs/logs.md lists them)"
    return f"check that the format is {arguments.format}"
