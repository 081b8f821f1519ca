"""Turns `host:port` into a listening socket, and a socket's address into a URL."""

import os
import socket

from kvcache_exporter.errors import ConfigError, KVCacheError

_FLAG = "--web.listen-address"
# Longer than the bursts in which scrapers and probes connect; the kernel caps it at somaxconn.
_BACKLOG = 1024


def parse_listen(address: str) -> tuple[str, int]:
    """Host (empty = all interfaces) and port; raises ConfigError."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed):
        raise ConfigError([f"{_FLAG}: expected host:port, :port or [ipv6]:port, found `{address}`"])
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigError([f"{_FLAG}: expected a port from 0 to 65535, found `{port}`"])
    return host[1:-1] if bracketed else host, int(port)


def listen_on(address: str) -> socket.socket:
    """Raises ConfigError for a malformed address, KVCacheError if it cannot be listened on."""
    host, port = parse_listen(address)
    try:
        if host:
            return _bound(host, port)
        return _all_interfaces(port)
    except OSError as error:
        # Not error.strerror: create_server puts the address into it once more.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        message = f"cannot listen on {address}: {reason}; stop what uses it or choose another {_FLAG}"
        raise KVCacheError(message) from error


def _bound(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first where a name has both, as other exporters do.
    family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server(place[:2], family=family, backlog=_BACKLOG)


def _all_interfaces(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=_BACKLOG)


def url_of(address: tuple[str, int], *, tls: bool) -> str:
    """Where this machine reaches what listens there."""
    host, port = address
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104  compared, not bound
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
