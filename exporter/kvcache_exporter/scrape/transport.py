"""HTTP connections with a hard deadline, however slowly the other side sends."""

import contextlib
import functools
import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from kvcache_exporter.lookups import LOOKUPS, AddressInfo, HungLookupError

_LOOKUP_SLICE = 0.5

Find = Callable[[str, int, float], Sequence[AddressInfo]]
"""Resolves a host (IPv6 without brackets) and port within a number of seconds; raises OSError."""


class Attempt:
    """One attempt to fetch a page: its deadline, and whether it had to connect."""

    def __init__(self) -> None:
        self._ends_at = 0.0
        self._socket: socket.socket | None = None
        self.connected = False

    def uses(self, sock: socket.socket) -> None:
        """Note the socket that `abort` has to shut down."""
        self._socket = sock

    def abort(self) -> None:
        """End the attempt at once; may be called from any thread."""
        self._ends_at = 0.0
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def start(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds
        self.connected = False

    def left(self) -> float:
        """Seconds until the deadline; raises TimeoutError once it has passed."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return left


class _TimedFile(io.RawIOBase):
    """The read side of a socket: no read lasts beyond the deadline of the attempt."""

    def __init__(self, sock: socket.socket, attempt: Attempt) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)
        self._attempt = attempt

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._attempt.left())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedSocket:
    """The part of a socket that http.client's response uses."""

    def __init__(self, sock: socket.socket, attempt: Attempt) -> None:
        self._sock = sock
        self._attempt = attempt

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedFile(self._sock, self._attempt), 1 << 16)


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, attempt: Attempt, **kwargs: Any) -> None:
        super().__init__(_TimedSocket(sock, attempt), *args, **kwargs)  # type: ignore[arg-type]


class _TimedConnection(HTTPConnection):
    def __init__(self, *args: Any, attempt: Attempt, look_up: Find, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._attempt = attempt
        self._look_up = look_up
        self.response_class = functools.partial(_TimedResponse, attempt=attempt)  # type: ignore[assignment]

    def _new_conn(self) -> socket.socket:
        self._attempt.connected = True
        host = self.host.strip("[]")
        try:
            addresses = self._addresses(host, self.port or self.default_port or 0)
        except OSError as error:
            cause = error if isinstance(error, socket.gaierror) else socket.gaierror(str(error))
            raise NameResolutionError(self.host, self, cause) from error
        return self._first_connected(addresses)

    def _addresses(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Looks up in slices, so that an aborted attempt ends although the resolver hangs."""
        while True:
            left = self._attempt.left()
            try:
                return self._look_up(host, port, min(left, _LOOKUP_SLICE))
            except HungLookupError:
                if left <= _LOOKUP_SLICE:
                    raise

    def _first_connected(self, addresses: Sequence[AddressInfo]) -> socket.socket:
        failure: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            self._attempt.uses(sock)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(self._attempt.left())
                sock.connect(address)
                # This timeout covers the whole TLS handshake.
                sock.settimeout(self._attempt.left())
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        if isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(self, "no connection in time") from failure
        raise NewConnectionError(self, failure.strerror or str(failure)) from failure


class _TimedTlsConnection(_TimedConnection, HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        if self.sock is not None:
            self._attempt.uses(self.sock)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _TimedConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TimedTlsConnection

    def _validate_conn(self, conn: Any) -> None:
        # urllib3 would warn at every request if the operator has disabled verification.
        if conn.is_closed:
            conn.connect()


class OnePool(HTTPAdapter):
    """Sends everything through one connection to one server: no proxies, cookies, redirects or netrc."""

    def __init__(self, pool: HTTPConnectionPool) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1)
        self._pool = pool

    def get_connection_with_tls_context(self, *_args: Any, **_kwargs: Any) -> HTTPConnectionPool:
        return self._pool

    def cert_verify(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing to do: the pool already has its TLS context."""

    def request_url(self, request: Any, *_args: Any, **_kwargs: Any) -> str:
        return str(request.path_url)

    def build_response(self, req: Any, resp: Any) -> requests.Response:
        # Without cookies, encoding detection and copies of headers, which cost a tenth of a fetch.
        response = requests.Response()
        response.request, response.raw = req, resp
        response.status_code, response.headers = resp.status, resp.headers
        return response

    def close(self) -> None:
        self._pool.close()
        super().close()


def open_pool(
    host: str,
    port: int | None,
    attempt: Attempt,
    context: ssl.SSLContext | None,
    *,
    server_name: str | None,
    look_up: Find = LOOKUPS.find,
) -> HTTPConnectionPool:
    if context is None:
        return _Pool(host, port, maxsize=1, attempt=attempt, look_up=look_up)
    return _TlsPool(
        host,
        port,
        maxsize=1,
        attempt=attempt,
        look_up=look_up,
        ssl_context=context,
        server_hostname=server_name or host.strip("[]"),
    )
