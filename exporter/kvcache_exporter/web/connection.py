"""uvicorn's connection, with limits for slow clients and the current TLS settings."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kvcache_exporter.web.config import Settings
from kvcache_exporter.web.tls import has_allowed_san

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server; times are total seconds, however slowly bytes arrive."""

    connections: int = 512
    first_seconds: float = 10.0
    """From the connection to the end of the first request, including the TLS handshake."""
    next_seconds: float = 120.0
    """From one request to the end of the next, including the time to read the response."""
    unsent_bytes: int = 64 << 20
    """Responses waiting for slow readers, over all connections; above it the oldest is dropped."""


class Connection(H11Protocol):
    def __init__(self, *args: Any, settings: Callable[[], Settings], limits: Limits, **more: Any) -> None:
        super().__init__(*args, **more)
        self._settings = settings
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self.since = 0.0

    @property
    def waits(self) -> bool:
        """Whether the server waits for the client."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def unsent(self) -> int:
        return self._wire.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._wire = self.transport = transport
        self.connections.add(self)
        self._expect(self._limits.first_seconds)
        if len(self.connections) > self._limits.connections:
            self._drop_oldest(other for other in self._others() if other.waits)
        settings = self._settings()
        if settings.tls is None:
            super().connection_made(transport)
        else:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._secure(settings.tls, settings.allowed_sans))

    async def _secure(self, context: ssl.SSLContext, allowed_sans: tuple[str, ...]) -> None:
        try:
            secured = await self.loop.start_tls(self._wire, self, context, server_side=True)
        except OSError as error:
            log.debug("handshake failed error=%s", error)
            secured = None
        if secured is None:
            self.drop()
        elif not has_allowed_san(secured.get_extra_info("peercert"), allowed_sans):
            log.warning("client refused: its certificate has no allowed SAN")
            self.drop()
        else:
            super().connection_made(secured)
            self.handle_events()

    def data_received(self, data: bytes) -> None:
        if self.flow is None:
            # Arrived with the end of the handshake, before the waiting task has resumed.
            self.conn.receive_data(data)
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._expect(self._limits.next_seconds)

    def on_response_complete(self) -> None:
        self._expect(self._limits.next_seconds)
        if sum(one.unsent for one in [self, *self._others()]) > self._limits.unsent_bytes:
            self._drop_oldest(other for other in self._others() if other.unsent)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        # uvicorn would raise while an earlier request is still being answered.
        if self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
        else:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def drop(self) -> None:
        self.connections.discard(self)
        self._wire.abort()

    def _expect(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.since = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self.drop)

    def _others(self) -> "list[Connection]":
        return [cast("Connection", one) for one in self.connections if one is not self]

    def _drop_oldest(self, candidates: "Iterable[Connection]") -> None:
        oldest = min(candidates, key=lambda one: one.since, default=None)
        if oldest is not None:
            oldest.drop()
