"""The options of a source of requests, and the times for following its files."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.joiner import JoinOptions
from kvcache_exporter.requests.outcome import FullHit


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of one source, wherever its lines come from."""

    name: str
    paths: tuple[str, ...]
    """Files to follow; empty if the lines come from elsewhere."""
    start_at: Literal["beginning", "end"]
    decoding: DecoderOptions
    full_hit: FullHit
    length_bands: tuple[int, ...] = ()
    models: int = 200
    groups: int = 200
    max_line_bytes: int = 8 << 20
    join: JoinOptions | None = None
    """How spans are joined to the records; None if they are not."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    max_line_bytes: int = 1024 * 1024
    block_bytes: int = 512 * 1024
    settle_seconds: float = 10.0
    """How long a file must be unchanged before a last line without newline is delivered, if complete JSON."""
    linger_seconds: float = 60.0
    """How long a file stays open after its end, and a rotated one may still be written to."""
    idle_seconds: float = 600.0
    """How long a file must be unchanged before its end is announced, unless it is rotated."""
    forget_seconds: float = 24 * 3600.0
    """How long the position of a deleted file is kept, in case a copy turns up."""
    clock: Callable[[], float] = time.time
