"""`inspect`: shows what the exporter makes of one page, and which families it did not find."""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.config import split_server_url
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import KVCacheError, UsageError
from kvcache_exporter.exposition import exposition
from kvcache_exporter.scrape.collector import TargetCollector, no_version
from kvcache_exporter.scrape.fetch import Fetcher
from kvcache_exporter.scrape.plan import Plan
from kvcache_exporter.scrape.version import EngineVersion

_ADDRESS = re.compile(r"[\w.-]+:\d+")
_SCHEMES = ("http://", "https://")


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "inspect",
        help="show what the exporter makes of one engine's metrics page",
        epilog="Example: kvcache-exporter inspect http://10.0.0.1:8000/metrics",
        description="Reads one metrics page and prints the exporter's metrics made from it on standard "
        "output, and which families were found, missing and deprecated on standard error.",
    )
    parser.add_argument("page", metavar="URL_OR_FILE", help="an engine's metrics URL, a file, or - for stdin")
    parser.add_argument(
        "--engine",
        choices=[engine.name for engine in ENGINES],
        help="which engine the page is from (default: recognised from the page)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    engines = [engine for engine in ENGINES if arguments.engine in (None, engine.name)]
    name, data = _read(arguments.page)
    is_file = not arguments.page.startswith(_SCHEMES)
    version = no_version if is_file else EngineVersion(arguments.page).of
    collector = TargetCollector(name, engines, version=version)
    collector.page(data, time.time())
    if collector.plan is None or not collector.up:
        raise KVCacheError(collector.last_error)
    print(exposition(collector.samples), end="")
    sys.stdout.flush()
    print("\n".join(_table(collector.plan, collector)), file=sys.stderr)
    return 0


def _read(page: str) -> tuple[str, bytes]:
    if page.startswith(_SCHEMES):
        try:
            netloc = split_server_url(page).netloc
        except ValueError as error:
            raise UsageError(f"URL_OR_FILE: {error}") from None
        return netloc.rpartition("@")[2], Fetcher(page, timeout=10.0).fetch()
    if page == "-":
        return "stdin", sys.stdin.buffer.read()
    try:
        return Path(page).name, Path(page).read_bytes()
    except OSError as error:
        hint = (
            f"for an engine write http://{page}/metrics"
            if _ADDRESS.fullmatch(page)
            else "give a URL or a file"
        )
        raise KVCacheError(f"{page}: {error.strerror}; {hint}") from None


def _table(plan: Plan, collector: TargetCollector) -> Iterator[str]:
    series: dict[str, int] = {}
    for sample in collector.samples:
        series[sample.metric.name] = series.get(sample.metric.name, 0) + 1
    yield f"engine       {plan.engine.name}"
    yield f"hit basis    {_basis(plan)}"
    yield f"ranks        {', '.join(key.rank or '-' for key in plan.keys)}"
    yield f"models       {', '.join(sorted({key.model_name for key in plan.keys})) or '-'}"
    yield f"missing      {', '.join(plan.missing) or 'none'}"
    yield f"deprecated   {', '.join(plan.deprecated) or 'none'}"
    anomalies = {reason: n for reason, n in collector.anomalies.items() if n}
    yield f"anomalies    {', '.join(f'{reason} {n}' for reason, n in sorted(anomalies.items())) or 'none'}"
    yield f"found        {sum(series.values())} series of {len(series)} metrics"


def _basis(plan: Plan) -> str:
    if not plan.engine.serves:
        return "none: this is not an engine, but runs beside engines"
    return plan.basis or "none: this page has no pair of counters to make one from"
