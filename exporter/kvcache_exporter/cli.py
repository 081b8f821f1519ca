"""The command `kvcache-exporter`. Exit codes: 0 ok, 1 failed, 2 bad usage or configuration."""

import argparse
import os
import sys
from collections.abc import Sequence

from kvcache_exporter import __version__
from kvcache_exporter.commands import (
    check,
    coldtest,
    demo,
    generate,
    healthy,
    inspect,
    metrics,
    plugin,
    publish,
    records,
    replay,
    report,
    serve,
)
from kvcache_exporter.errors import ConfigError, KVCacheError

COMMANDS = (
    serve,
    check,
    healthy,
    demo,
    inspect,
    records,
    report,
    replay,
    coldtest,
    generate,
    publish,
    plugin,
    metrics,
)


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="kvcache-exporter",
        description="Observability for the prefix (KV) cache of LLM inference engines and managed APIs.",
        epilog="COMMAND --help says more. To look at it: kvcache-exporter demo. Exit codes: 0 ok, 1 failed, "
        "2 bad usage or configuration.",
    )
    root.add_argument("--version", action="version", version=f"kvcache-exporter {__version__}")
    subparsers = root.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except KVCacheError as error:
        print(f"kvcache-exporter: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader (head, less) has gone; Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        advice = "check the path and your rights to it"
        print(f"kvcache-exporter: {error.filename or ''}: {error.strerror}; {advice}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code
