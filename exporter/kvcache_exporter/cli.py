"""The command `kvcache-exporter`. Exit codes: 0 ok, 1 failed, 2 bad usage or configuration."""

import argparse
import errno
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
from kvcache_exporter.errors import ConfigError, KVCacheError, UsageError

_ADVICE = {
    errno.ENOENT: "check the path",
    errno.EACCES: "check the permissions of this user",
    errno.EPERM: "check the permissions of this user",
    errno.EROFS: "choose a path on a writable file system",
    errno.ENOSPC: "free some space",
    errno.EEXIST: "choose another path",
    errno.EISDIR: "give a file",
    errno.ENOTDIR: "give a folder",
}

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
        epilog="Run `kvcache-exporter COMMAND --help` for the options of a command, and `kvcache-exporter "
        "demo` to see it work. Exit codes: 0 ok, 1 failed, 2 bad usage or configuration.",
    )
    root.add_argument(
        "--version",
        action="version",
        version=f"kvcache-exporter {__version__}",
        help="show the version and exit",
    )
    subparsers = root.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except UsageError as error:
        print(f"kvcache-exporter: {error}", file=sys.stderr)
        return 2
    except ConfigError as error:
        # Without a prefix, so that editors and CI find file:line:column.
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
        print(f"kvcache-exporter: {_explained(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _explained(error: OSError) -> str:
    """What went wrong, where, and what to do, as far as the error tells."""
    where = f"{error.filename}: " if error.filename else ""
    advice = f"; {_ADVICE[error.errno]}" if error.errno in _ADVICE else ""
    return f"{where}{error.strerror or error or type(error).__name__}{advice}"
