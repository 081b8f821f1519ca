"""`generate`: writes the boards or the rules with the user's own data source, labels and thresholds."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.direct import direct_rules
from kvcache_exporter.errors import ConfigError

Files = Callable[[Mapping[str, str]], Mapping[str, str]]


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "generate",
        help="write the dashboards or the rules with your own settings",
        epilog="Example: kvcache-exporter generate rules --out rules --set KVCachePreemptionSpike.floor=0.1",
        description="Writes the Grafana dashboards (JSON) or the Prometheus rules (YAML). A single file goes "
        "to standard output unless --out is given; several go into the folder --out (default: this one).",
    )
    parser.add_argument("what", choices=("dashboards", "rules"), help="what to write")
    parser.add_argument("--out", type=Path, metavar="D", help="the folder to write into; made if missing")
    add_direct(parser)
    add_settings(parser)
    parser.set_defaults(run=run)


def add_direct(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--direct",
        action="store_true",
        help="rules that also make the series of engines from their own pages, scraped without an exporter",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="change a parameter such as a threshold, a label or the data source; may be repeated",
    )


def setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def run(arguments: argparse.Namespace) -> int:
    if arguments.direct and arguments.what != "rules":
        raise ConfigError(
            ["--direct: only rules can do without the exporter; boards are the same either way"]
        )
    made = (
        dashboards(arguments.settings)
        if arguments.what == "dashboards"
        else rules(arguments.settings, direct=arguments.direct)
    )
    if len(made) == 1 and arguments.out is None:
        print(*made.values(), end="")
        return 0
    folder = arguments.out or Path()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        print(f"{_write(folder / name, text)}: {folder / name}", file=sys.stderr)
    return 0


def dashboards(settings: list[tuple[str, str]]) -> Mapping[str, str]:
    """The boards' files ({name: JSON}) under these settings."""
    # Only two commands need the boards and Grafana's model behind them: the others start without it.
    from kvcache_dashboards.write import files  # noqa: PLC0415

    return _made(files, settings)


def rules(settings: list[tuple[str, str]], *, direct: bool = False) -> Mapping[str, str]:
    """The rules' files ({name: YAML}) under these settings."""
    from kvcache_alerts.write import files  # noqa: PLC0415

    return _made(partial(files, direct=direct_rules if direct else None), settings)


def _made(files: Files, settings: list[tuple[str, str]]) -> Mapping[str, str]:
    try:
        return files(dict(settings))
    except ValueError as error:
        raise ConfigError([f"--set: {error}"]) from error


def _write(path: Path, text: str) -> str:
    old = path.read_text() if path.exists() else None
    if old == text:
        return "unchanged"
    path.write_text(text)
    return "created" if old is None else "updated"
