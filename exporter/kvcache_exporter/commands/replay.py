"""`replay`: feeds recorded pages and logs through the real pipeline under a virtual clock."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

from kvcache_exporter import catalogue as c
from kvcache_exporter.commands.arguments import Subparsers, duration
from kvcache_exporter.commands.cold_table import ColdTable, cold_table
from kvcache_exporter.commands.recording import RecordedPage, recorded_logs, recorded_pages
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.exposition import exposition
from kvcache_exporter.model import Aggregate, RequestRecord, Sample
from kvcache_exporter.requests.files import read_lines
from kvcache_exporter.requests.formats import AUTO
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.scrape.summary import summarise

_WINDOW = "window"
"""Name of the window that `--window` asks for."""


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "replay",
        help="feed a recording of your own through the exporter and print the metrics",
        epilog="Example: kvcache-exporter replay recorded-pages --json --window 1m",
        description="Feeds recorded pages (*_<unixtime>.prom, in time order; one folder for each target) and "
        "usage logs (files in logs/ and export/) through the real pipeline under a virtual clock. Prints the "
        "final metrics or, with --json, one line per page.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the recording")
    parser.add_argument("--json", action="store_true", help="one JSON object per page")
    parser.add_argument(
        "--window",
        type=duration,
        default=300.0,
        metavar="T",
        help="window of the ratios of --json (default 5m)",
    )
    parser.add_argument(
        "--cold", action="store_true", help="print a table that compares each cold start with the warm time"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    pages = recorded_pages(arguments.folder)
    windows = {**c.WINDOWS, _WINDOW: arguments.window} if arguments.json else c.WINDOWS
    fleet = Fleet()
    collectors = {
        page.target: TargetCollector(page.target, ENGINES, windows=windows, fleet=fleet) for page in pages
    }
    tables = {name: ColdTable(collector) for name, collector in collectors.items()}
    logs = [RecordedLog(path, arguments.folder) for path in recorded_logs(arguments.folder)]
    for page in pages:
        collector = collectors[page.target]
        collector.page(page.path.read_bytes(), page.at)
        tables[page.target].page()
        for log in logs:
            log.play_until(page.at)
        if arguments.json:
            print(json.dumps(summary(collector, page)), flush=True)
    if arguments.cold:
        print("\n".join(cold_table(tables.values())))
    elif not arguments.json:
        print(exposition(_samples(collectors.values(), logs)), end="")
    return 0


class RecordedLog:
    """A usage log whose records are counted when the virtual clock reaches them."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.ledger = Ledger(path.relative_to(folder).as_posix(), FullHit())
        self._waiting = sorted(self._read(path), key=itemgetter(0))

    def play_until(self, at: float) -> None:
        """Count what was logged up to `at` (Unix seconds)."""
        due = 0
        while due < len(self._waiting) and self._waiting[due][0] <= at:
            due += 1
        self.ledger.add([entry for _, entry in self._waiting[:due]])
        del self._waiting[:due]
        self.ledger.tick(at)

    def play_rest(self) -> None:
        self.ledger.add([entry for _, entry in self._waiting])
        self._waiting.clear()

    def _read(self, path: Path) -> Iterator[tuple[float, Entry]]:
        decoder = AUTO.decoder(DecoderOptions())
        entries: list[Entry] = []
        for lines in read_lines(str(path)):
            self.ledger.health.lines += len(lines)
            entries += decoder.decode(lines)
        entries += decoder.flush()
        if not decoder.chosen:
            print(f"{path}: no known usage log; its lines are only counted", file=sys.stderr)
        return ((_logged_at(entry), entry) for entry in entries)


def _logged_at(entry: Entry) -> float:
    """When the entry was logged, at the end of its request; 0 if the entry has no time."""
    if isinstance(entry, RequestRecord) and entry.timestamp is not None:
        return entry.timestamp + (entry.duration_seconds or 0.0)
    if isinstance(entry, Aggregate):
        return entry.timestamp or 0.0
    return 0.0


def _samples(collectors: Iterable[TargetCollector], logs: list[RecordedLog]) -> Iterator[Sample]:
    for collector in collectors:
        yield from collector.samples
    for log in logs:
        log.play_rest()
        yield from log.ledger.samples()


def summary(collector: TargetCollector, page: RecordedPage) -> dict[str, object]:
    """One page's line: the target with all its ranks, ratios over `--window`, null without traffic."""
    plan = collector.plan
    return {
        "at": page.at,
        "phase": page.phase,
        "target": page.target,
        "target_up": int(collector.up),
        "hit_basis": plan.basis if plan else "",
        **summarise(collector, _WINDOW)._asdict(),
        "anomalies": {reason: n for reason, n in sorted(collector.anomalies.items()) if n},
    }
