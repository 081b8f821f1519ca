"""The HTTP server: one loop waits for all clients, a few workers do the work.

No worker ever waits for a client, so clients that are idle or drip single bytes cost a socket and nothing
else. When all connections are taken, the one that has kept us waiting longest makes room for the new one.
"""

import contextlib
import logging
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from kvcache_exporter.webconfig import Settings
from kvcache_exporter.webconnection import Connection
from kvcache_exporter.webhttp import Request, Response
from kvcache_exporter.weblisten import listen_on, url_of
from kvcache_exporter.webservice import Closed, Limits, Service, Unverified, Waiting

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.25
_PATIENCE_PIECES = 8
_REST_SECONDS = 1.0
"""A request that comes in more pieces is read no oftener than this, or dripping would cost a core."""
_ACCEPT_BATCH = 64
_CLOSED = 0


class WebServer:
    """Bound when made, so that a taken port is known at once; serves from `start` to `stop`."""

    def __init__(
        self,
        listen: str,
        respond: Callable[[Request], Response],
        settings: Callable[[], Settings] = Settings,
        limits: Limits | None = None,
    ) -> None:
        """Raises what `listen_on` raises."""
        self._limits = limits or Limits()
        self._service = Service(respond, settings, self._limits)
        self._listener = listen_on(listen)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._alarm, self._alarm_end = socket.socketpair()
        self._ready: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()
        self._unverified: queue.Queue[Connection | None] = queue.Queue(self._limits.password_checks)
        self._returned: deque[tuple[Connection, int]] = deque()
        # The following belong to the loop alone.
        self._open: set[Connection] = set()
        self._waiting: set[Connection] = set()
        self._resting: list[tuple[float, Connection]] = []
        self._next_tick = 0.0
        self._stop_at = float("inf")
        jobs = [("web-loop", self._loop), ("web-passwords", self._verify)]
        jobs += [(f"web-worker-{number}", self._work) for number in range(self._limits.workers)]
        self._threads = [threading.Thread(target=job, name=name, daemon=True) for name, job in jobs]

    @property
    def url(self) -> str:
        """Where to reach the server from this machine."""
        return url_of(self.address, tls=self._service.settings().tls is not None)

    def start(self) -> None:
        self._alarm.setblocking(False)
        for end in (self._listener, self._alarm_end):
            end.setblocking(False)
            self._selector.register(end, selectors.EVENT_READ)
        for thread in self._threads:
            thread.start()

    def stop(self, grace: float = 5.0) -> None:
        """Takes no new connections and lets running requests end, for `grace` seconds at most."""
        self._stop_at = time.monotonic() + grace
        if self._threads[0].ident is not None:
            self._wake()
            self._threads[0].join(grace + 1.0)
        for _ in range(self._limits.workers):
            self._ready.put(None)
        with contextlib.suppress(queue.Full):
            self._unverified.put_nowait(None)
        self._selector.close()
        for end in (self._listener, self._alarm, self._alarm_end):
            end.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._alarm.send(b"!")

    def _work(self) -> None:
        while (connection := self._ready.get()) is not None:
            event = self._move(connection)
            if event is not None:
                self._returned.append((connection, event))
                self._wake()

    def _move(self, connection: Connection) -> int | None:
        """The event to wait for next, or None if the connection went into a queue instead."""
        try:
            if connection.advance():
                self._ready.put(connection)
                return None
        except Waiting as waiting:
            return waiting.event
        except Unverified:
            self._queue_for_password(connection)
            return None
        except Closed:
            return _CLOSED
        except Exception:
            log.exception("connection failed client=%s", connection.peer)
            return _CLOSED
        return selectors.EVENT_READ

    def _queue_for_password(self, connection: Connection) -> None:
        try:
            self._unverified.put_nowait(connection)
        except queue.Full:
            connection.refuse_busy()
            self._ready.put(connection)

    def _verify(self) -> None:
        # One thread, because bcrypt is slow on purpose: guesses may use one core and no worker.
        while (connection := self._unverified.get()) is not None:
            connection.verify()
            self._ready.put(connection)

    def _loop(self) -> None:
        while not self._finished():
            try:
                self._turn()
            except Exception:
                log.exception("web loop failed, going on")
                time.sleep(_TICK_SECONDS)
        for connection in list(self._open):
            self._drop(connection)

    def _turn(self) -> None:
        for key, _ in self._selector.select(_TICK_SECONDS):
            self._dispatch(key)
        while self._returned:
            self._take_back(*self._returned.popleft())
        if time.monotonic() >= self._next_tick:
            self._tick()
            self._next_tick = time.monotonic() + _TICK_SECONDS

    def _finished(self) -> bool:
        if self._stop_at == float("inf"):
            return False
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._listener)
        for connection in [one for one in self._waiting if one.phase in ("idle", "head")]:
            self._drop(connection)
        return not self._open or time.monotonic() >= self._stop_at

    def _dispatch(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._alarm_end:
            self._alarm_end.recv(4096)
        else:
            connection: Connection = key.data
            if connection in self._waiting:
                self._selector.unregister(connection.sock)
                self._waiting.discard(connection)
                self._ready.put(connection)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:
                log.warning("cannot accept a connection: %s; raise the limit of open files", error.strerror)
                self._make_room()
                return
            self._welcome(sock)

    def _welcome(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, self._service)
        if len(self._open) >= self._limits.connections and not self._make_room():
            connection.shed()
            return
        self._open.add(connection)
        self._wait_for(connection, selectors.EVENT_READ)

    def _make_room(self) -> bool:
        if not self._waiting:
            return False
        self._drop(min(self._waiting, key=lambda one: (one.phase == "write", one.since)))
        return True

    def _take_back(self, connection: Connection, event: int) -> None:
        if event == _CLOSED:
            self._drop(connection)
        elif connection.pieces > _PATIENCE_PIECES and event == selectors.EVENT_READ:
            self._waiting.add(connection)
            self._resting.append((time.monotonic() + _REST_SECONDS, connection))
        else:
            self._wait_for(connection, event)
            if event == selectors.EVENT_WRITE:
                self._bound_unsent(connection)

    def _wait_for(self, connection: Connection, event: int) -> None:
        self._waiting.add(connection)
        self._selector.register(connection.sock, event, connection)

    def _bound_unsent(self, newest: Connection) -> None:
        writers = sorted((one for one in self._waiting if one.unsent), key=lambda one: one.since)
        unsent = sum(one.unsent for one in writers)
        for writer in writers:
            if unsent <= self._limits.unsent_bytes:
                return
            if writer is not newest:
                unsent -= writer.unsent
                self._drop(writer)

    def _tick(self) -> None:
        now = time.monotonic()
        for connection in [one for one in self._waiting if one.deadline <= now]:
            log.debug("client too slow client=%s phase=%s", connection.peer, connection.phase)
            self._drop(connection)
        rested = [one for until, one in self._resting if until <= now]
        self._resting = [pair for pair in self._resting if pair[0] > now]
        for connection in self._waiting.intersection(rested):
            self._wait_for(connection, selectors.EVENT_READ)

    def _drop(self, connection: Connection) -> None:
        if connection in self._waiting:
            self._waiting.discard(connection)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection.sock)
        self._open.discard(connection)
        connection.close()
