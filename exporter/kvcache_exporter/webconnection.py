"""One client's connection: moved on by a worker as far as it goes without ever waiting for the client."""

import contextlib
import logging
import selectors
import socket
import ssl
import time

from kvcache_exporter.webconfig import Settings
from kvcache_exporter.webhttp import MAX_HEAD_BYTES, BadRequest, Request, Response, encode, parse_head, text
from kvcache_exporter.webservice import Closed, Phase, Service, Unverified, Waiting
from kvcache_exporter.webtls import has_allowed_san

log = logging.getLogger(__name__)

_CHUNK = 64 << 10
_SEND_CHUNK = 256 << 10


class Connection:
    """Owned by the loop while it waits for its client, by one worker while it moves."""

    def __init__(self, sock: socket.socket, service: Service) -> None:
        self.sock = sock
        self.peer = _name(sock)
        self.pieces = 0
        """Times the present request came in incomplete."""
        self._service = service
        self._secured = False
        self._verdict: bool | None = None
        """What bcrypt said about the present request."""
        self._request: Request | None = None
        self._buffer = bytearray()
        self._out = memoryview(b"")
        self._closing = False
        self.enter("head")

    @property
    def unsent(self) -> int:
        return len(self._out)

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = time.monotonic()
        self.deadline = self.since + self._service.limits.seconds(phase)

    def advance(self) -> bool:
        """Moves on through at most one request; True if more can be done at once.

        Raises Waiting, Unverified or Closed where it cannot go on by itself.
        """
        try:
            return self._step()
        except (ssl.SSLWantReadError, BlockingIOError):
            raise Waiting(selectors.EVENT_READ) from None
        except ssl.SSLWantWriteError:
            raise Waiting(selectors.EVENT_WRITE) from None
        except (OSError, ValueError) as error:
            log.debug("connection lost client=%s error=%s", self.peer, error)
            raise Closed from None

    def _step(self) -> bool:
        self._flush()
        self._secure()
        try:
            self._answer(self._receive())
        except BadRequest as error:
            self._refuse(error)
        self._flush()
        return bool(self._buffer) or (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0)

    def verify(self) -> None:
        """Slow: asks bcrypt about the present request's credentials."""
        users = self._service.settings().users
        header = self._request.headers.get("authorization", "") if self._request else ""
        self._verdict = users is None or users.check(header)

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.sock.close()

    def shed(self) -> None:
        """Tells a client that waits in plain text that there is no room; closes either way."""
        if self._service.settings().tls is None:
            _send_plain(self.sock, text(503, "too many connections; try again", ("Retry-After", "1")))
        self.close()

    def _secure(self) -> None:
        if self._secured:
            return
        settings = self._service.settings()
        if settings.tls is not None or isinstance(self.sock, ssl.SSLSocket):
            sock = self._handshake(settings.tls)
            if not has_allowed_san(sock, settings.allowed_sans):
                log.warning("client refused: its certificate has no allowed SAN client=%s", self.peer)
                raise Closed
        self._secured = True

    def _handshake(self, context: ssl.SSLContext | None) -> ssl.SSLSocket:
        sock = self.sock
        if context is not None and not isinstance(sock, ssl.SSLSocket):
            sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            self.sock = sock
        if not isinstance(sock, ssl.SSLSocket):
            raise Closed
        try:
            sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.pieces += 1
            raise
        except ssl.SSLError as error:
            log.debug("handshake failed client=%s error=%s", self.peer, error)
            if error.reason == "HTTP_REQUEST":
                _send_plain(sock, text(400, "this port speaks HTTPS; use https://"))
            self._linger()
            raise Waiting(selectors.EVENT_READ) from None
        return sock

    def _receive(self) -> Request:
        """The next request whose body has come in too; what it takes is removed from the buffer."""
        while self._request is None or len(self._buffer) < self._request.body_bytes:
            if self._request is None and self._take_head():
                continue
            self._fill()
        return self._request

    def _take_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD_BYTES:
                raise BadRequest(431, f"the request's head is larger than {MAX_HEAD_BYTES} bytes")
            return False
        self._request = parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        return True

    def _fill(self) -> None:
        try:
            data = self.sock.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.pieces += bool(self._buffer)
            raise
        if not data:
            raise Closed
        if self.phase == "linger":
            raise Waiting(selectors.EVENT_READ)
        if self.phase == "idle":
            self.enter("head")
        self._buffer += data

    def _answer(self, request: Request) -> None:
        settings = self._service.settings()
        started = time.perf_counter()
        response = self._checked(request, settings)
        self._closing = not request.keep_alive
        payload = encode(
            response,
            head_only=request.method == "HEAD",
            keep_alive=request.keep_alive,
            headers=settings.headers,
        )
        del self._buffer[: request.body_bytes]
        self._request, self._verdict, self.pieces = None, None, 0
        self._send(payload)
        log.debug(
            "request client=%s method=%s path=%.200s status=%d bytes=%d seconds=%.4f",
            self.peer,
            request.method,
            request.path,
            response.status,
            len(payload),
            time.perf_counter() - started,
        )

    def _checked(self, request: Request, settings: Settings) -> Response:
        if settings.users is not None:
            verdict = self._verdict
            if verdict is None:
                verdict = settings.users.known(request.headers.get("authorization", ""))
            if verdict is None:
                raise Unverified
            if not verdict:
                return text(401, "unauthorized", ("WWW-Authenticate", 'Basic realm="kvcache-exporter"'))
        try:
            return self._service.respond(request)
        except Exception:
            log.exception("request failed method=%s path=%.200s", request.method, request.path)
            return text(500, "internal error; the exporter's log has the details")

    def refuse_busy(self) -> None:
        """Answers 503 because too many credentials wait to be checked."""
        self._refuse(BadRequest(503, "too many passwords to check; try again"))

    def _refuse(self, error: BadRequest) -> None:
        log.debug("request refused client=%s status=%d reason=%s", self.peer, error.status, error)
        self._request, self._closing = None, True
        self._buffer.clear()
        headers = self._service.settings().headers
        response = text(error.status, str(error))
        self._send(encode(response, head_only=False, keep_alive=False, headers=headers))

    def _send(self, payload: bytes) -> None:
        self._out = memoryview(payload)
        self.enter("write")

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self.sock.send(self._out[:_SEND_CHUNK])
            except (BlockingIOError, ssl.SSLWantWriteError):
                raise Waiting(selectors.EVENT_WRITE) from None
            self._out = self._out[sent:]
        if self.phase == "write":
            self._finish_response()

    def _finish_response(self) -> None:
        if self._closing:
            if isinstance(self.sock, ssl.SSLSocket):
                with contextlib.suppress(OSError, ValueError):
                    self.sock.unwrap()
            self._linger()
        else:
            self.enter("head" if self._buffer else "idle")

    def _linger(self) -> None:
        """Ends our side and waits for the client's: closing with bytes unread would reset the connection
        and lose the last answer or alert on its way."""
        self._secured = self._closing = True
        self._buffer.clear()
        self.enter("linger")
        self.sock.shutdown(socket.SHUT_WR)


def _send_plain(sock: socket.socket, response: Response) -> None:
    """Past any TLS layer, and only as far as it goes at once."""
    with contextlib.suppress(OSError):
        socket.socket.send(sock, encode(response, head_only=False, keep_alive=False, headers={}))


def _name(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "gone"
