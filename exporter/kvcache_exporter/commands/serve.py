"""`serve`: runs the exporter until SIGTERM or SIGINT; SIGHUP reloads the configuration."""

import argparse
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvcache_exporter import __version__
from kvcache_exporter.app import App
from kvcache_exporter.commands import logs
from kvcache_exporter.commands.arguments import Subparsers, shard_index
from kvcache_exporter.pages import ExporterPages
from kvcache_exporter.settings import overview
from kvcache_exporter.web import WebConfig, web_server

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = ":9409"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run the exporter",
        epilog="Example: kvcache-exporter serve --config.file kvcache.yaml",
        description="Runs the exporter until SIGTERM or Ctrl-C. SIGHUP and POST /-/reload reload the "
        "configuration; a file with errors leaves the old one in force.",
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--web.listen-address",
        dest="listen",
        default=DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help="where to listen (default :9409, on all interfaces)",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config",
        type=Path,
        metavar="W",
        help="file with TLS and basic auth settings, in the format of Prometheus' exporter-toolkit",
    )
    parser.add_argument(
        "--web.open-probes",
        dest="open_probes",
        action="store_true",
        help="answer /-/healthy and /-/ready without a password, for a kubelet's probes",
    )
    logs.add_arguments(parser)
    parser.set_defaults(run=run)


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        required=True,
        metavar="F",
        help="the configuration file (docs/configuration.md)",
    )
    parser.add_argument(
        "--shard.index",
        dest="shard_index",
        type=shard_index,
        metavar="N",
        help="override shard.index: a number, or a StatefulSet pod's name such as kvcache-exporter-2",
    )


def run(arguments: argparse.Namespace) -> int:
    logs.configure(arguments)
    with _signals_held():
        web_config = WebConfig(arguments.web_config)
        app = App(arguments.config_file, arguments.shard_index)
        pages = ExporterPages(app)
        server = web_server(arguments.listen, pages, web_config, open_probes=arguments.open_probes)
        app.start()
        server.start()
        log.info("kvcache-exporter %s is listening on %s", __version__, server.url)
        log.info("configuration %s: %s", arguments.config_file, overview(app.config))
        while signal.sigwait(_SIGNALS) == signal.SIGHUP:
            pages.reload()
        log.info("stopping")
        server.stop()
        app.stop()
    return 0


@contextmanager
def _signals_held() -> Iterator[None]:
    """Signals wait for `sigwait`, in this thread and in those that it starts.

    A handler would not do: one that runs just before the main thread goes to sleep does not wake it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        # Whoever presses Ctrl-C twice still gets the exit code of a clean end.
        while late := signal.sigpending() & {*_SIGNALS}:
            signal.sigwait(late)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
