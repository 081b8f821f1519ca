"""Argument types that several subcommands share."""

import argparse
import re
from typing import TYPE_CHECKING

from kvcache_exporter.shard import parse_index

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 -- argparse has no other name
else:
    Subparsers = object

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def shard_index(text: str) -> int:
    """An index, also as the end of a StatefulSet pod's name."""
    try:
        return parse_index(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """Seconds of `15s`, `5m`, `1h`; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 15s, 5m or 1h")
    return float(match[1]) * _UNITS[match[2] or "s"]
