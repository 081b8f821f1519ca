"""Bodies of requests: bounded in size, time and sum, whatever the client does; real sockets."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from kvcache_exporter.web import WebServer
from kvcache_exporter.web.bodies import Bodies
from kvcache_exporter.web.endpoints import Request, Response, text

LARGEST = 1 << 20


def tell(request: Request) -> Response:
    return text(200, f"{len(request.body)} {request.body_problem}".strip())


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer("127.0.0.1:0", tell, max_body=lambda _: LARGEST) as running:
        running._application._bodies = Bodies(seconds=0.5, all_bytes=LARGEST + 1000)
        yield running


def dial(server: WebServer, length: int, part: bytes) -> socket.socket:
    sock = socket.create_connection(server.address, timeout=10)
    sock.sendall(
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % length + part
    )
    return sock


def answer(sock: socket.socket) -> str:
    received = b"".join(iter(lambda: sock.recv(65536), b""))
    return received.partition(b"\r\n\r\n")[2].decode().strip()


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_body_that_drips_is_given_up_in_time_and_its_room_is_given_back(server: WebServer) -> None:
    with closing(dial(server, 100, b"x")) as sock:
        began = time.monotonic()
        while time.monotonic() - began < 0.4:
            sock.sendall(b"x")
            time.sleep(0.05)
        assert answer(sock) == "0 slow"
    until(lambda: server._application._bodies._held == 0)


def test_all_bodies_together_are_bounded(server: WebServer) -> None:
    first = dial(server, LARGEST, b"x" * (LARGEST - 1))
    bodies = server._application._bodies
    until(lambda: bodies._held == LARGEST - 1)
    with closing(first), closing(dial(server, 2000, b"y" * 2000)) as second:
        assert answer(second) == "0 busy"
        first.sendall(b"x")
        assert answer(first) == str(LARGEST)
    with closing(dial(server, 2000, b"y" * 2000)) as third:
        assert answer(third) == "2000"


def test_a_client_that_goes_away_leaves_nothing_behind(server: WebServer) -> None:
    bodies = server._application._bodies
    dial(server, 100_000, b"x" * 50_000).close()
    until(lambda: bodies._held == 0)
    with closing(dial(server, 5, b"hello")) as sock:
        assert answer(sock) == "5"
