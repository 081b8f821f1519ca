"""`generate`: writes the boards or the rules with the user's own data source, labels and thresholds."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.direct import direct_rules
from kvcache_exporter.errors import UsageError

Files = Callable[[Mapping[str, str]], Mapping[str, str]]


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "generate",
        help="write the dashboards or the rules with your own settings",
        epilog="Example: kvcache-exporter generate rules --out rules --set KVCachePreemptionSpike.floor=0.1",
        description="Writes the Grafana dashboards (JSON) or the Prometheus rules (YAML) into a folder.",
    )
    parser.add_argument("what", choices=("dashboards", "rules"), help="what to write")
    parser.add_argument(
        "--out", type=Path, metavar="D", help="the folder, made if missing (default: the current one)"
    )
    add_direct(parser)
    add_settings(parser)
    parser.set_defaults(run=run)


def add_direct(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--direct",
        action="store_true",
        help="add rules that make the exporter's series from engine pages that Prometheus scrapes itself",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="set a parameter such as a threshold, a label or the data source; may be repeated",
    )


def setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def run(arguments: argparse.Namespace) -> int:
    if arguments.direct and arguments.what != "rules":
        raise UsageError("--direct: applies to rules only; the dashboards are the same with and without it")
    made = (
        dashboards(arguments.settings)
        if arguments.what == "dashboards"
        else rules(arguments.settings, direct=arguments.direct)
    )
    folder = arguments.out or Path()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        print(f"{_write(folder / name, text)}: {folder / name}", file=sys.stderr)
    return 0


def dashboards(settings: list[tuple[str, str]]) -> Mapping[str, str]:
    """The boards' files ({name: JSON}) with these settings."""
    # Imported late: Grafana's model is slow to load, and only two commands need it.
    from kvcache_dashboards.write import files  # noqa: PLC0415

    return _made(files, settings)


def rules(settings: list[tuple[str, str]], *, direct: bool = False) -> Mapping[str, str]:
    """The rules' files ({name: YAML}) with these settings."""
    from kvcache_alerts.write import files  # noqa: PLC0415

    return _made(partial(files, direct=direct_rules if direct else None), settings)


def _made(files: Files, settings: list[tuple[str, str]]) -> Mapping[str, str]:
    try:
        return files(dict(settings))
    except ValueError as error:
        raise UsageError(f"--set: {error}") from error


def _write(path: Path, text: str) -> str:
    old = path.read_text() if path.exists() else None
    if old == text:
        return "unchanged"
    path.write_text(text)
    return "created" if old is None else "updated"
