"""ZeroMQ sockets that reconnect, notice dead peers and bound the size of frames."""

import re
from functools import cache
from typing import Any

import zmq

from kvcache_exporter.lookups import LOOKUPS, bracketed, is_literal

_LOOKUP_SECONDS = 2.0
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


def has_name(endpoint: str) -> bool:
    """Whether it takes a look-up to connect to an endpoint."""
    host = _host(endpoint)
    return bool(host) and not is_literal(host)


def located(endpoint: str, turn: int = 0) -> str:
    """The endpoint with an address for its name, of several the one whose turn it is; raises OSError.

    ZeroMQ would look it up in the one thread that serves every socket, and all would wait for a resolver that
    hangs.
    """
    host = _host(endpoint)
    if not host or is_literal(host):
        return endpoint
    port = endpoint.rpartition(":")[2]
    addresses = list(dict.fromkeys(info[4][0] for info in LOOKUPS.find(host, int(port), _LOOKUP_SECONDS)))
    return f"tcp://{bracketed(addresses[turn % len(addresses)])}:{port}"


def _host(endpoint: str) -> str:
    match = re.fullmatch(r"tcp://\[?(?P<host>[^;*]+?)\]?:\d+", endpoint)
    return match["host"] if match else ""
