"""`replay`: feeds recorded pages and logs through the real pipeline under a virtual clock."""

import argparse
import json
from pathlib import Path

from kvcache_exporter import catalogue as c
from kvcache_exporter.commands.arguments import Subparsers, duration
from kvcache_exporter.commands.recording import RecordedPage, recorded_pages
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.exposition import exposition
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.summary import summarise


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "replay",
        help="feed a recording through the exporter and print what it makes of it",
        description="Feeds recorded pages (*_<unixtime>.prom, in time order; a folder of folders is several "
        "targets) through the real pipeline under a virtual clock. Prints the final exposition or, with "
        "--json, one line per page.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="one JSON object per page")
    parser.add_argument(
        "--window", type=duration, default=300.0, metavar="5m", help="length of the window (default 5m)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    pages = recorded_pages(arguments.folder)
    windows = {**c.WINDOWS, "window": arguments.window} if arguments.json else c.WINDOWS
    collectors = {page.target: TargetCollector(page.target, ENGINES, windows=windows) for page in pages}
    for page in pages:
        collector = collectors[page.target]
        collector.page(page.path.read_bytes(), page.at)
        if arguments.json:
            print(json.dumps(summary(collector, page, arguments.window)), flush=True)
    if not arguments.json:
        print(exposition(sample for found in collectors.values() for sample in found.samples), end="")
    return 0


def summary(collector: TargetCollector, page: RecordedPage, window: float) -> dict[str, object]:
    """One page's line: all ranks of the target as one, ratios over `window` seconds, null without traffic."""
    plan = collector.plan
    return {
        "at": page.at,
        "phase": page.phase,
        "target": page.target,
        "target_up": int(collector.up),
        "hit_basis": plan.basis if plan else "",
        **summarise(collector, window)._asdict(),
        "anomalies": {reason: n for reason, n in sorted(collector.anomalies.items()) if n},
    }
