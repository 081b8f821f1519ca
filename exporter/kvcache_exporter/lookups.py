"""Looks up host names in separate threads, so that callers can set a timeout.

The system's resolver takes no timeout, cannot be cancelled, and may hang for half a minute or more.
"""

import ipaddress
import socket
import threading
import time
from asyncio import wrap_future
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any

AddressInfo = tuple[Any, ...]
"""One result of socket.getaddrinfo."""
_MOST = 256
_KEEP_SECONDS = 60.0


class HungLookupError(OSError):
    """The look-up did not finish in time. Not a TimeoutError, which would blame the host."""


def resolve(host: str, port: int) -> Sequence[AddressInfo]:
    """Resolves a host (IPv6 without brackets) and port; raises OSError if the name has no address."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(str(error)) from error


class _Lookup:
    """One look-up; any number of threads and event loops may wait for `found`."""

    def __init__(self) -> None:
        self.found: Future[Sequence[AddressInfo]] = Future()
        # A waiter that is cancelled must not cancel it for the others.
        self.found.set_running_or_notify_cancel()
        self.ended = float("inf")
        """Monotonic time."""

    def run(self, host: str) -> None:
        try:
            addresses = resolve(host, 0)
        except OSError as error:
            self.ended = time.monotonic()
            self.found.set_exception(error)
        else:
            self.ended = time.monotonic()
            self.found.set_result(addresses)


class Lookups:
    """Runs at most one look-up per name, and at most `most` at once; thread-safe.

    An answer that arrives after the caller's timeout is kept for a minute. Otherwise a dead first name
    server, which makes each look-up take five seconds, would defeat every shorter timeout.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._running: dict[str, _Lookup] = {}

    def find(self, host: str, port: int, seconds: float) -> Sequence[AddressInfo]:
        """Raises OSError if the name has no address, HungLookupError after `seconds`."""
        if is_literal(host):
            return resolve(host, port)
        lookup = self._joined(host)
        if not wait([lookup.found], max(0.0, seconds)).done:
            raise HungLookupError("the look-up of the name hangs; check the resolver (DNS)")
        self._end(host, lookup)
        if (error := lookup.found.exception()) is not None:
            raise type(error)(*error.args)
        return at_port(lookup.found.result(), port)

    async def found(self, host: str, port: int) -> Sequence[AddressInfo]:
        """`find` for event loops, without a timeout."""
        lookup = self._joined(host)
        try:
            return at_port(await wrap_future(lookup.found), port)
        finally:
            if lookup.found.done():
                self._end(host, lookup)

    def _joined(self, host: str) -> _Lookup:
        with self._lock:
            self._drop_unused()
            lookup = self._running.get(host)
            if lookup is not None:
                return lookup
            if len(self._running) >= self._most:
                problem = f"look-ups of {self._most} names hang already"
                raise HungLookupError(f"{problem}; check the resolver (DNS)")
            lookup = self._running[host] = _Lookup()
        try:
            # A daemon thread, so that the process can exit while the resolver hangs.
            threading.Thread(target=lookup.run, args=(host,), name=f"look-up {host}", daemon=True).start()
        except RuntimeError as error:
            self._end(host, lookup)
            raise HungLookupError(f"no thread for the look-up: {error}") from None
        return lookup

    def _drop_unused(self) -> None:
        oldest = time.monotonic() - _KEEP_SECONDS
        for host in [host for host, lookup in self._running.items() if lookup.ended < oldest]:
            del self._running[host]

    def _end(self, host: str, lookup: _Lookup) -> None:
        with self._lock:
            if self._running.get(host) is lookup:
                del self._running[host]


def at_port(addresses: Sequence[AddressInfo], port: int) -> Sequence[AddressInfo]:
    return [(*info[:4], (info[4][0], port, *info[4][2:])) for info in addresses]


def is_literal(host: str) -> bool:
    """Whether a host is an IP address, which needs no look-up."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """A host as it stands before a port, an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


LOOKUPS = Lookups()
"""For names from the configuration."""
