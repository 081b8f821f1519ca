"""The HTTP server: uvicorn in its own thread, on a socket that is bound at once."""

import asyncio
import errno
import functools
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection
from typing import Any, Self
from urllib.parse import urlsplit

import uvicorn

from kvcache_exporter.errors import KVCacheError, UsageError
from kvcache_exporter.web.application import Application
from kvcache_exporter.web.config import WebConfig
from kvcache_exporter.web.connection import Connection, Limits
from kvcache_exporter.web.endpoints import PROBES, Endpoints, Pages, Request, Response

MAX_HEAD_BYTES = 16 << 10
GRACE_SECONDS = 5
"""Seconds that running requests may take to finish when the server stops."""

_FLAG = "--web.listen-address"
_ADVICE = {
    errno.EADDRINUSE: f"stop what uses it or choose another {_FLAG}",
    errno.EADDRNOTAVAIL: f"this machine has no such address; give one of its own to {_FLAG}, or only :PORT",
    errno.EACCES: f"ports below 1024 take root or CAP_NET_BIND_SERVICE; choose a higher one in {_FLAG}",
}


class WebServer:
    """Bound when created, so that a port in use is reported at once; serves from `start` to `stop`."""

    def __init__(
        self,
        listen: str,
        respond: Callable[[Request], Response],
        config: WebConfig | None = None,
        limits: Limits | None = None,
        *,
        open_paths: Collection[str] = (),
        max_body: Callable[[Request], int] = lambda _: 0,
    ) -> None:
        """`open_paths` and `max_body` as in `Application`; raises the errors of `listen_on`."""
        self._config = config or WebConfig()
        self._listener = listen_on(listen)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._application = Application(respond, self._config.current, open_paths, max_body)
        self._uvicorn = _uvicorn(self._application, self._config, limits or Limits())
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)

    @property
    def url(self) -> str:
        """URL of the server on this machine."""
        return url_of(self.address, self._config.scheme)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Refuse new connections and let running requests finish."""
        self._uvicorn.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(GRACE_SECONDS + 2.0)
        self._application.close()
        self._listener.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _serve(self) -> None:
        await self._uvicorn.serve([self._listener])
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def web_server(
    listen: str, pages: Pages, config: WebConfig | None = None, *, open_probes: bool = False
) -> WebServer:
    """A server that is bound but not started; raises the errors of `listen_on`."""
    endpoints = Endpoints(pages)
    return WebServer(
        listen,
        endpoints.respond,
        config,
        open_paths=PROBES if open_probes else (),
        max_body=endpoints.max_body,
    )


def _uvicorn(application: Application, config: WebConfig, limits: Limits) -> uvicorn.Server:
    protocol: Any = functools.partial(Connection, settings=config.current, limits=limits)
    options = uvicorn.Config(
        application,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # Its warnings are about single clients, who could flood the log.
        log_level=logging.ERROR,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # One more connection than allowed, which gets an error response.
        limit_concurrency=limits.connections + 1,
        timeout_keep_alive=int(limits.next_seconds),
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    return uvicorn.Server(options)


def parse_listen(address: str) -> tuple[str, int]:
    """Host ("" for all interfaces) and port; raises UsageError."""
    try:
        parts = urlsplit(f"//{address}")
        port = parts.port
    except ValueError:
        port = None
    if port is None or parts.netloc != address:
        raise UsageError(f"{_FLAG}: expected host:port, :port or [ipv6]:port, found `{address}`")
    return parts.hostname or "", port


def listen_on(address: str) -> socket.socket:
    """Raises UsageError for a malformed address, KVCacheError if listening fails."""
    host, port = parse_listen(address)
    everywhere = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=everywhere)
    except OSError as error:
        # Not error.strerror: create_server adds the address to it again.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        advice = _ADVICE.get(error.errno or 0, f"choose another {_FLAG}")
        raise KVCacheError(f"cannot listen on {address}: {reason}; {advice}") from error
    # Connections inherit it; asyncio sets it only for an explicit protocol, which is 0 here.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url_of(address: tuple[str, int], scheme: str) -> str:
    """The URL of this address on this machine."""
    host, port = address
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104  compared, not bound
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
