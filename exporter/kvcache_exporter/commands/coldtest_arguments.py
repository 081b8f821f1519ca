"""The arguments of `coldtest` and their limits, which cannot be raised."""

import argparse
from collections.abc import Callable
from pathlib import Path

from kvcache_exporter.commands.arguments import duration

MAX_REQUESTS = 10_000
"""In all phases together."""
MAX_CONCURRENCY = 64
MAX_OUTPUT_TOKENS = 256
MAX_PREFIX_TOKENS = 32_768
MAX_SECONDS = 3600.0
"""Of a phase, of a request, and of a restart."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_endpoint(parser)
    _add_load(parser)
    _add_restart(parser)
    _add_verdict(parser)


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endpoint")
    group.add_argument(
        "--url", required=True, metavar="U", help="the engine's address, such as http://127.0.0.1:8000"
    )
    group.add_argument(
        "--model", default="", metavar="M", help="the model to ask for (default: the only one served)"
    )
    group.add_argument(
        "--api-key-file", type=Path, metavar="F", help="file with the API key, sent as a bearer token"
    )
    group.add_argument(
        "--allow-plain-http", action="store_true", help="allow sending the key to another host without TLS"
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load")
    what = group.add_mutually_exclusive_group()
    what.add_argument(
        "--prompts", type=Path, metavar="FILE", help="send these: JSON lines with messages or prompt"
    )
    what.add_argument(
        "--shared-prefix", type=_whole(16, MAX_PREFIX_TOKENS), metavar="N",
        help="send a generated load whose system prompts have about N tokens",
    )  # fmt: skip
    group.add_argument(
        "--requests", type=_whole(1, MAX_REQUESTS), metavar="N",
        help=f"requests in each run (default 200; in all, with the warm-up, at most {MAX_REQUESTS:,})",
    )  # fmt: skip
    group.add_argument(
        "--concurrency", type=_whole(1, MAX_CONCURRENCY), metavar="N",
        help=f"requests at the same time (default 4, at most {MAX_CONCURRENCY})",
    )  # fmt: skip
    group.add_argument(
        "--max-tokens", type=_whole(1, MAX_OUTPUT_TOKENS), metavar="N",
        help=f"longest reply, in tokens (default 16, at most {MAX_OUTPUT_TOKENS})",
    )  # fmt: skip
    group.add_argument(
        "--unique-share",
        type=_share,
        metavar="X",
        help="share of prompts that are sent only once, from 0 to 1 (default 0.2)",
    )
    group.add_argument(
        "--duration", type=_seconds, default=600.0, metavar="T",
        help="stop sending this long after a run began (default 10m, at most 1h)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=_seconds, default=120.0, metavar="T", help="limit for one request (default 2m)"
    )
    group.add_argument(
        "--seed",
        type=_whole(0, 2**31),
        metavar="N",
        help="the same seed gives the same texts (default: random)",
    )


def _add_restart(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("restart (by default, you are asked to restart the engine)")
    how = group.add_mutually_exclusive_group()
    how.add_argument(
        "--restart-command",
        metavar="CMD",
        help="shell command that restarts the engine; must return only once the old process is gone",
    )
    how.add_argument("--warm-only", action="store_true", help="stop after the warm run")
    how.add_argument(
        "--cold-only", action="store_true", help="run only the cold run: the engine has just been restarted"
    )
    how.add_argument(
        "--against",
        type=Path,
        metavar="RESULT",
        help="as --cold-only, compared with the --json result of a --warm-only run, with the same load",
    )
    group.add_argument(
        "--ready-timeout", type=_seconds, default=600.0, metavar="T",
        help="how long the command, and then the engine, may take (default 10m each)",
    )  # fmt: skip


def _add_verdict(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("verdict")
    group.add_argument(
        "--objective-ttft-p99",
        type=_seconds,
        metavar="T",
        help="fail if the cold p99 of TTFT is above this, such as 2s or 800ms",
    )
    group.add_argument(
        "--max-ratio", type=_ratio, metavar="R", help="fail if cold p99 / warm p99 of TTFT is above this"
    )
    group.add_argument(
        "--granule", type=_whole(1, 4096), metavar="N",
        help="tokens in a block of the engine's cache (default: 16 for vLLM, else 1)",
    )  # fmt: skip


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high:,}")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    seconds = duration(text)
    if seconds > MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MAX_SECONDS:g} seconds")
    return seconds


def _share(text: str) -> float:
    share = _ratio(text)
    if share > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return share


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value
