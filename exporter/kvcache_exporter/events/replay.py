"""Asks a publisher for batches it has sent before, from the buffer it keeps for that."""

import time
from collections.abc import Iterator
from typing import Any

import zmq

from kvcache_exporter.events.sockets import prepared

_ANSWER_SECONDS = 2.0
"""Publishers look for requests between two batches, at the latest after a tenth of a second."""
_TOTAL_SECONDS = 10.0
_PAUSE_SECONDS = 10.0
"""After a request that got no answer, so that a lost replay port does not hold up the live batches."""


class Replay:
    """One publisher's replay endpoint; without one, nothing can be had."""

    def __init__(self, context: zmq.Context[Any], endpoint: str | None) -> None:
        self._context, self._endpoint = context, endpoint
        self._silent_until = 0.0

    def between(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Sequence numbers from `first` to before `end` with their payloads, in order, as far as kept."""
        if self._endpoint is None or time.monotonic() < self._silent_until:
            return
        with prepared(self._context, zmq.DEALER) as dealer:
            dealer.connect(self._endpoint)
            dealer.send_multipart([b"", first.to_bytes(8, "big")])
            for number, payload in self._answers(dealer):
                if number >= end:
                    return
                if number >= first:
                    first = number + 1
                    yield number, payload

    def _answers(self, dealer: zmq.Socket[bytes]) -> Iterator[tuple[int, bytes]]:
        """Up to the end marker; answers are `["", number, payload]`, later with the topic in second place."""
        deadline = time.monotonic() + _TOTAL_SECONDS
        while time.monotonic() < deadline and dealer.poll(int(_ANSWER_SECONDS * 1000)):
            frames = dealer.recv_multipart()
            if len(frames) not in (3, 4) or len(frames[-2]) != 8:
                break
            number = int.from_bytes(frames[-2], "big", signed=True)
            if number < 0:
                return
            yield number, frames[-1]
        self._silent_until = time.monotonic() + _PAUSE_SECONDS
