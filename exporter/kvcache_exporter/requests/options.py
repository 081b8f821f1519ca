"""What the configuration says of a log source, and how patiently files are followed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.joiner import JoinOptions
from kvcache_exporter.requests.outcome import FullHit


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Of one source, wherever its lines come from."""

    name: str
    paths: tuple[str, ...]
    """Files to follow; none where the lines come from elsewhere."""
    start_at: Literal["beginning", "end"]
    decoding: DecoderOptions
    full_hit: FullHit
    length_bands: tuple[int, ...] = ()
    models: int = 200
    groups: int = 200
    max_line_bytes: int = 8 << 20
    join: JoinOptions | None = None
    """Where spans are joined to the records."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    max_line_bytes: int = 1024 * 1024
    block_bytes: int = 512 * 1024
    settle_seconds: float = 10.0
    """After how long at rest a last line without newline is given, if it is whole JSON."""
    linger_seconds: float = 60.0
    """How long a file at its end is kept open, and a rotated one may still be written to."""
    idle_seconds: float = 600.0
    """After how long at rest the end of a file is announced that nobody rotated."""
    forget_seconds: float = 24 * 3600.0
    """How long the position of a file that is gone is kept, in case that a copy turns up."""
    clock: Callable[[], float] = time.time
