"""`metrics`: prints the catalogue as Markdown."""

import argparse
from itertools import groupby

from kvcache_exporter.catalogue import CATALOGUE, Metric
from kvcache_exporter.commands.arguments import Subparsers

_HEAD = """# Metrics

Generated from the catalogue by `kvcache-exporter metrics`; do not edit.

Labels with an empty value are left out of the page. Ratios run from 0 to 1 and need traffic.
"""


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "metrics",
        help="print every metric as Markdown",
        epilog="Example: kvcache-exporter metrics > metrics.md",
        description="Prints every metric with its type, labels and meaning, as Markdown.",
    )
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    print(markdown(), end="")
    return 0


def markdown() -> str:
    """The text of docs/metrics.md."""
    sections = [_section(area, list(metrics)) for area, metrics in groupby(CATALOGUE, lambda m: m.area)]
    return "\n".join([_HEAD, *sections])


def _section(area: str, metrics: list[Metric]) -> str:
    rows = [
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels)} | {m.help} |"
        for m in metrics
    ]
    return "\n".join(
        [f"## {area}", "", "| metric | type | labels | meaning |", "|---|---|---|---|", *rows, ""]
    )
