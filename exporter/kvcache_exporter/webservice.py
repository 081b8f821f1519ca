"""What the server's loop, its workers and the connections agree on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvcache_exporter.webconfig import Settings
from kvcache_exporter.webhttp import Request, Response

Phase = Literal["head", "idle", "write", "linger"]
"""What a connection waits for: a request, the next one, its client to read, its client to hang up."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server spends on its clients; times are seconds in all, however the bytes drip."""

    connections: int = 512
    workers: int = 16
    head_seconds: float = 10.0
    """From the connection, or the first byte of a later request, to the end of the request; TLS included."""
    idle_seconds: float = 120.0
    write_seconds: float = 30.0
    linger_seconds: float = 1.0
    unsent_bytes: int = 64 << 20
    """Responses that wait for slow readers, all connections together; then the slowest is dropped."""
    password_checks: int = 16
    """Unknown credentials that may queue for bcrypt; more are answered 503."""

    def seconds(self, phase: Phase) -> float:
        by_phase: dict[Phase, float] = {
            "head": self.head_seconds,
            "idle": self.idle_seconds,
            "write": self.write_seconds,
            "linger": self.linger_seconds,
        }
        return by_phase[phase]


@dataclass(frozen=True, slots=True)
class Service:
    """What connections need to know of the rest of the program."""

    respond: Callable[[Request], Response]
    settings: Callable[[], Settings]
    limits: Limits


class Waiting(Exception):  # noqa: N818  control flow, no error
    """The client must do something first: become readable or writable."""

    def __init__(self, event: int) -> None:
        super().__init__()
        self.event = event


class Unverified(Exception):  # noqa: N818  control flow, no error
    """Only bcrypt can tell whether the credentials are right, so another worker has to look."""


class Closed(Exception):  # noqa: N818  control flow, no error
    """The connection is over."""
