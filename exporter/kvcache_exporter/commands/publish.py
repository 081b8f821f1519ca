"""`publish`: pushes the boards to Grafana and the rules to a ruler or plain Prometheus; only what changed."""

import argparse
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.commands.generate import add_direct, add_settings, dashboards, rules
from kvcache_exporter.errors import UsageError
from kvcache_exporter.publish import prometheus
from kvcache_exporter.publish.changes import Change
from kvcache_exporter.publish.client import Client
from kvcache_exporter.publish.grafana import Grafana
from kvcache_exporter.publish.mimir import NAMESPACE, Ruler, groups_of

TOKEN_VARIABLE = "KVCACHE_TOKEN"  # noqa: S105 -- the name of a variable


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "publish",
        help="push the dashboards to Grafana, the rules to Mimir or Prometheus",
        description="Pushes the dashboards to Grafana, or the rules to Mimir, Cortex or plain Prometheus. "
        "Only what differs is written, so a second run changes nothing. --dry-run shows what would change.",
    )
    kinds = parser.add_subparsers(required=True, metavar="grafana|mimir|prometheus")
    _add_grafana(kinds)
    _add_mimir(kinds)
    _add_prometheus(kinds)


def _add_grafana(kinds: Subparsers) -> None:
    parser = kinds.add_parser(
        "grafana",
        help="the dashboards, over Grafana's HTTP API",
        epilog="Example: kvcache-exporter publish grafana --url https://grafana.example.com --dry-run",
        description="Pushes the dashboards over Grafana's HTTP API; only those that differ are written.",
    )
    _add_server(parser, "https://grafana.example.com")
    parser.add_argument(
        "--folder",
        default="",
        metavar="F",
        help="uid or title of the folder, made if missing (default: root)",
    )
    parser.add_argument(
        "--datasource",
        default="",
        metavar="UID_OR_NAME",
        help="the Prometheus data source that the dashboards open with (default: Grafana's default)",
    )
    parser.set_defaults(run=_grafana)


def _add_mimir(kinds: Subparsers) -> None:
    parser = kinds.add_parser(
        "mimir",
        help="the rules, over the ruler API of Mimir or Cortex",
        epilog="Example: kvcache-exporter publish mimir --url https://mimir.example.com/prometheus --dry-run",
        description="Pushes the rules over the ruler API of Mimir or Cortex; only groups that differ are "
        "written.",
    )
    _add_server(parser, "https://mimir.example.com/prometheus")
    parser.add_argument("--tenant", default="", metavar="ID", help="the tenant, sent as X-Scope-OrgID")
    parser.add_argument(
        "--namespace",
        default=NAMESPACE,
        metavar="N",
        help=f"the ruler namespace that holds these rules and no others (default {NAMESPACE})",
    )
    add_direct(parser)
    parser.set_defaults(run=_mimir)


def _add_prometheus(kinds: Subparsers) -> None:
    parser = kinds.add_parser(
        "prometheus",
        help="the rules, into a file or folder that Prometheus reads",
        epilog="Example: kvcache-exporter publish prometheus --file /etc/prometheus/rules/kvcache.yaml",
        description="Writes the rules into a file or folder that Prometheus reads and, with --reload-url, "
        "makes Prometheus load them.",
    )
    parser.add_argument("--file", type=Path, required=True, metavar="PATH", help="a .yaml file or a folder")
    parser.add_argument(
        "--reload-url", metavar="U", help="Prometheus' address, to which POST /-/reload is sent afterwards"
    )
    _add_token(parser)
    _add_changes(parser)
    add_direct(parser)
    parser.set_defaults(run=_prometheus)


def _add_server(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument("--url", required=True, metavar="U", help=f"the server's address, such as {example}")
    _add_token(parser)
    _add_changes(parser)


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="T",
        help=f"file with the token (default: the environment variable {TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--user", default="", metavar="NAME", help="use basic authentication with the token as the password"
    )


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would change and change nothing")
    add_settings(parser)


def _grafana(arguments: argparse.Namespace) -> int:
    grafana = Grafana(_client(arguments, arguments.url))
    boards = [json.loads(text) for text in dashboards(arguments.settings).values()]
    changes = grafana.publish(boards, arguments.folder, arguments.datasource, dry_run=arguments.dry_run)
    return _show(changes, dry_run=arguments.dry_run)


def _mimir(arguments: argparse.Namespace) -> int:
    headers = {"X-Scope-OrgID": arguments.tenant} if arguments.tenant else {}
    ruler = Ruler(_client(arguments, arguments.url, headers), arguments.namespace)
    groups = groups_of(rules(arguments.settings, direct=arguments.direct))
    return _show(ruler.publish(groups, dry_run=arguments.dry_run), dry_run=arguments.dry_run)


def _prometheus(arguments: argparse.Namespace) -> int:
    url = arguments.reload_url
    client = _client(arguments, url) if url else None
    made = rules(arguments.settings, direct=arguments.direct)
    _show(prometheus.write(arguments.file, made, dry_run=arguments.dry_run), dry_run=arguments.dry_run)
    if client and not arguments.dry_run:
        prometheus.reload(client)
        print(f"reloaded: {client.url}")
    return 0


def _client(arguments: argparse.Namespace, url: str, headers: dict[str, str] | None = None) -> Client:
    return Client(url, _token(arguments.token_file), user=arguments.user, headers=headers)


def _token(path: Path | None) -> str:
    token = (os.environ.get(TOKEN_VARIABLE, "") if path is None else path.read_text()).strip()
    where = TOKEN_VARIABLE if path is None else f"--token-file {path}"
    if (path and not token) or not token.isascii() or not token.isprintable():
        raise UsageError(f"{where}: expected the token on one line, in ASCII")
    return token


def _show(changes: Sequence[Change], *, dry_run: bool) -> int:
    for change in changes:
        print(change.text(dry_run=dry_run))
    counts = Counter(change.action for change in changes)
    total = ", ".join(f"{n} {action}" for action, n in counts.items())
    print(f"dry run, nothing was changed: {total}" if dry_run else f"done: {total}")
    return 0
