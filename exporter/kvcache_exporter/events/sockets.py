"""ZeroMQ sockets that reconnect, notice dead peers and bound the size of frames."""

from functools import cache
from typing import Any

import zmq

_MAX_SOCKETS = 16_384
_MAX_FRAME_BYTES = 16 << 20
_QUEUED_MESSAGES = 10_000
"""As many as engines keep for replay."""


@cache
def shared_context() -> zmq.Context[Any]:
    """One context for all sources, as each has its own threads."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
    return context


def prepared(context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
    """A socket that is not bound or connected yet: limits apply only to later connections."""
    socket: zmq.Socket[bytes] = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVHWM, _QUEUED_MESSAGES)
    socket.set(zmq.MAXMSGSIZE, _MAX_FRAME_BYTES)
    socket.set(zmq.IPV6, 1)
    socket.set(zmq.RECONNECT_IVL, 100)
    socket.set(zmq.RECONNECT_IVL_MAX, 5_000)
    socket.set(zmq.HEARTBEAT_IVL, 5_000)
    socket.set(zmq.HEARTBEAT_TIMEOUT, 15_000)
    return socket
