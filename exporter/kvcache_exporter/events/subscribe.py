"""Puts one publisher's batches in order: fills gaps by replay or counts them, and notices restarts.

A publisher numbers its batches from 0, so a number that goes back means that the engine has restarted with an
empty cache. A restart can also hide in a gap, so the last batch that was read is requested again along with
the missing ones: if it differs, the engine has restarted.
"""

import time
from typing import Any, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from kvcache_exporter.events.replay import Replay
from kvcache_exporter.events.sockets import has_name, located, prepared

_LEAP = 1 << 32
"""More batches than any outage can miss: a larger step is another sequence, not a gap."""
_REOPEN_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 10.0
"""Until a name that leads to where nobody answers is looked up again: pods come back with another address."""
_ENDED = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class Sink(Protocol):
    """Receives the batches."""

    lost: int

    def add(self, payload: bytes) -> bool:
        """False if it could not be read."""
        ...

    def learn(self, payload: bytes) -> None:
        """Take a batch from before the first one that is counted."""
        ...

    def reject(self) -> None:
        """Count a message that is not a batch."""
        ...

    def forget(self) -> None:
        """The engine has restarted."""
        ...


class Stream:
    """Puts the messages of one publisher in order."""

    def __init__(self, replay: Replay, sink: Sink) -> None:
        self._replay, self._sink = replay, sink
        self._last: int | None = None
        self._last_payload = 0
        """A hash of the payload of batch `_last`."""

    def accept(self, frames: list[bytes]) -> None:
        """Take a message, whose `frames` are the topic, a number of 8 bytes, and the payload."""
        number = int.from_bytes(frames[1], "big", signed=True) if len(frames) == 3 else -1
        if number < 0 or len(frames[1]) != 8:
            self._sink.reject()
            return
        if self._last is None:
            self._learn(number)
        elif number <= self._last or number - self._last > _LEAP:
            self._restart(number)
        elif number > self._last + 1:
            self._fill(self._last, number)
        self._take(number, frames[2])

    def _take(self, number: int, payload: bytes) -> None:
        if not self._sink.add(payload):
            self._sink.lost += 1
        self._last, self._last_payload = number, hash(payload)

    def _learn(self, number: int) -> None:
        for _, payload in self._replay.between(0, number):
            self._sink.learn(payload)

    def _restart(self, number: int) -> None:
        self._sink.forget()
        if number > _LEAP:
            self._learn(number)
        else:
            self._fill(-1, number)

    def _fill(self, last: int, number: int) -> None:
        """Take the batches between the two numbers; -1 for `last` is the start of a sequence."""
        expected = last + 1
        for found, payload in self._replay.between(max(last, 0), number):
            if found == last:
                if hash(payload) != self._last_payload:
                    self._restart(number)
                    return
                continue
            self._sink.lost += found - expected
            self._take(found, payload)
            expected = found + 1
        self._sink.lost += number - expected


class Subscription:
    """A stream and its socket; the socket can be reopened, and the place in the sequence is kept."""

    def __init__(
        self, context: zmq.Context[Any], endpoint: str, topic: str, stream: Stream, *, bind: bool
    ) -> None:
        self._context, self._endpoint, self._topic = context, endpoint, topic
        self._stream, self._bind = stream, bind
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._opened = 0.0
        self._opens = 0
        self._located = ""
        """Where the endpoint was found last."""
        self._connected = self._over = False

    def open(self) -> zmq.Socket[bytes]:
        """Raises zmq.ZMQError if the endpoint cannot be used, OSError if its name is not found."""
        self.close()
        endpoint = self._endpoint if self._bind else self._locate()
        socket = self._socket = prepared(self._context, zmq.SUB)
        socket.set(zmq.SUBSCRIBE, self._topic.encode())
        self._opened = time.monotonic()
        self._connected = self._over = False
        if self._bind:
            socket.bind(endpoint)
        else:
            self._monitor = socket.get_monitor_socket(_ENDED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
            socket.connect(endpoint)
        return socket

    def _locate(self) -> str:
        try:
            self._located = located(self._endpoint, self._opens)
        except OSError:
            # While the resolver is away the last known address may still be right.
            if not self._located:
                raise
        self._opens += 1
        return self._located

    def close(self) -> zmq.Socket[bytes] | None:
        """Close the socket and return it."""
        closed, monitor = self._socket, self._monitor
        self._socket = self._monitor = None
        if closed is not None:
            closed.disable_monitor()
            closed.close()
        if monitor is not None:
            monitor.close()
        return closed

    def receive(self, limit: int) -> int:
        """Take at most `limit` waiting messages; returns how many there were."""
        if self._socket is None:
            return 0
        for taken in range(limit):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return taken
            self._stream.accept(frames)
        return limit

    def ended(self) -> bool:
        """Whether the connection has ended and it is time to open another.

        ZeroMQ does not reconnect to a peer that has sent too large a frame or anything else that violates
        its protocol.
        """
        seconds = time.monotonic() - self._opened
        if self._monitor is None or seconds < _REOPEN_SECONDS:
            return False
        while self._monitor.poll(0):
            succeeded = recv_monitor_message(self._monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._connected |= succeeded
            self._over |= not succeeded
        unreached = not self._connected and seconds >= _LOOK_AGAIN_SECONDS
        return self._over or (unreached and has_name(self._endpoint))
