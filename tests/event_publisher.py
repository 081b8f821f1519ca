"""A real ZeroMQ publisher that behaves like an engine's, and loses what a test wants it to lose."""

import threading
from typing import Any, Self

import msgspec
import zmq

TOPIC = b"kv@pod-1@tiny"
END = b"\xff" * 8


class Publisher:
    """Numbers, publishes and keeps batches like an engine; `frames` is the length of its replay answers."""

    def __init__(
        self, port: int, replay_port: int | None = None, *, frames: int = 4, connect: bool = False
    ) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        # An XPUB is a PUB that tells when somebody has subscribed.
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.XPUB)
        self._socket.set(zmq.LINGER, 0)
        (self._socket.connect if connect else self._socket.bind)(f"tcp://127.0.0.1:{port}")
        self._frames = frames
        self.kept: dict[int, bytes] = {}
        self.next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(replay_port,), daemon=True)
        if replay_port:
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        self._socket.close()
        self._context.term()

    def subscribed(self) -> None:
        assert self._socket.poll(10_000)
        assert self._socket.recv()[0] == 1

    def publish(self, *events: Any, sent: bool = True, keep: bool = True) -> None:
        payload = msgspec.msgpack.encode([1_800_000_000.0 + self.next, events, 0])
        self.pass_on(payload, sent=sent, keep=keep)

    def pass_on(self, payload: bytes, *, sent: bool, keep: bool = True) -> None:
        if keep:
            self.kept[self.next] = payload
        if sent:
            self._socket.send_multipart([TOPIC, self.next.to_bytes(8, "big"), payload])
        self.next += 1

    def store(self, *hashes: int, sent: bool = True, keep: bool = True) -> None:
        self.publish({"type": "BlockStored", "block_hashes": hashes}, sent=sent, keep=keep)

    def remove(self, *hashes: int, sent: bool = True) -> None:
        self.publish({"type": "BlockRemoved", "block_hashes": hashes}, sent=sent)

    def raw(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames)

    def _serve(self, port: int) -> None:
        router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        router.set(zmq.LINGER, 0)
        router.bind(f"tcp://127.0.0.1:{port}")
        while not self._stop.is_set():
            if router.poll(20):
                client, _, start = router.recv_multipart()
                topic = [TOPIC] if self._frames == 4 else []
                for number, payload in sorted(self.kept.items()):
                    if number >= int.from_bytes(start, "big"):
                        router.send_multipart([client, b"", *topic, number.to_bytes(8, "big"), payload])
                router.send_multipart([client, b"", *topic, END, b""])
        router.close()
