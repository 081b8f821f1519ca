"""Publishes a recording's KV events like its engine."""

import zmq

from kvcache_exporter.demo.playback import RecordedEngine
from kvcache_exporter.events.sockets import shared_context

_TOPIC = b"kv"


class EventPublisher:
    """Publishes on a free port of 127.0.0.1; events wait for the first subscriber."""

    def __init__(self, engine: RecordedEngine) -> None:
        self.recorded = engine
        self._waiting = iter(engine.events)
        self._next = next(self._waiting, None)
        # An XPUB is a PUB that reports subscriptions.
        self._socket: zmq.Socket[bytes] = shared_context().socket(zmq.XPUB)
        self._socket.set(zmq.LINGER, 0)
        # Beyond its limit a publisher drops messages; these are few.
        self._socket.set(zmq.SNDHWM, 0)
        self._heard = False
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"

    def write_until(self, at: float) -> None:
        """`at`: seconds since the recording began."""
        self._heard = self._heard or bool(self._socket.poll(0))
        while self._heard and self._next is not None and self._next[0] <= at:
            _, sequence, payload = self._next
            self._socket.send_multipart([_TOPIC, sequence.to_bytes(8, "big"), payload])
            self._next = next(self._waiting, None)

    def close(self) -> None:
        self._socket.close()
