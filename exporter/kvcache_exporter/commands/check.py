"""`check`: validates a configuration file."""

import argparse

from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.commands.serve import add_config_arguments
from kvcache_exporter.settings import overview, read_config


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "check",
        help="validate a configuration file",
        epilog="Example: kvcache-exporter check --config.file kvcache.yaml",
        description="Validates a configuration file and the files it names. Prints every problem as "
        "file:line:column: path: message and exits with 2 if there is any.",
    )
    add_config_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    config = read_config(arguments.config_file, arguments.shard_index)
    print(f"{arguments.config_file}: valid; {overview(config)}")
    return 0
