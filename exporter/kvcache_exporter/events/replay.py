"""Requests missed batches from the buffer that a publisher keeps for replay."""

import time
from collections.abc import Iterator
from typing import Any

import zmq

from kvcache_exporter.events.sockets import located, prepared

_ANSWER_SECONDS = 2.0
"""A publisher answers between two batches, within a tenth of a second at most."""
_TOTAL_SECONDS = 10.0
_PAUSE_SECONDS = 10.0
"""After an unanswered request, so that a dead replay port does not delay live batches."""


class Replay:
    """One publisher's replay endpoint; without one, nothing is replayed."""

    def __init__(self, context: zmq.Context[Any], endpoint: str | None) -> None:
        self._context, self._endpoint = context, endpoint
        self._silent_until = 0.0

    def between(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Pairs of sequence number and payload from `first` to before `end`, as far as they are kept."""
        if self._endpoint is None or time.monotonic() < self._silent_until:
            return
        try:
            endpoint = located(self._endpoint)
        except OSError:
            self._silent_until = time.monotonic() + _PAUSE_SECONDS
            return
        with prepared(self._context, zmq.DEALER) as dealer:
            dealer.connect(endpoint)
            dealer.send_multipart([b"", first.to_bytes(8, "big")])
            for number, payload in self._answers(dealer):
                if number >= end:
                    return
                if number >= first:
                    first = number + 1
                    yield number, payload

    def _answers(self, dealer: zmq.Socket[bytes]) -> Iterator[tuple[int, bytes]]:
        """Answers up to the end marker: `["", number, payload]`, in newer versions with the topic second."""
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
