"""The server against clients that are slow, many, broken or hostile; real sockets throughout."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.webhttp import BadRequest, Request, Response, encode, parse_head, text
from kvcache_exporter.webserver import WebServer
from kvcache_exporter.webservice import Limits

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
QUICK = Limits(connections=8, workers=2, head_seconds=0.6, idle_seconds=0.6, write_seconds=0.6)


def echo(request: Request) -> Response:
    return text(200, f"{request.method} {request.path}")


def serve(respond: Callable[[Request], Response] = echo, limits: Limits | None = None) -> WebServer:
    return WebServer("127.0.0.1:0", respond, limits=limits)


@pytest.fixture
def server() -> Iterator[WebServer]:
    with serve() as running:
        yield running


def dial(server: WebServer) -> socket.socket:
    return socket.create_connection(server.address, timeout=10)


def talk(server: WebServer, payload: bytes) -> bytes:
    """All that the server sends until it closes."""
    with dial(server) as sock:
        sock.sendall(payload)
        return drain(sock)


def drain(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(65536), b""))


def test_1000_idle_and_dripping_clients_delay_no_scrape(server: WebServer) -> None:
    """Every kind of slow client, twice as many as there are connections."""
    clients = [dial(server) for _ in range(1000)]
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.1):
            for sock in clients[::2]:
                try:
                    sock.send(b"G")
                except OSError:
                    continue

    dripper = threading.Thread(target=drip)
    dripper.start()
    try:
        slowest = max(timed_get(server) for _ in range(30))
    finally:
        stop.set()
        dripper.join()
        for sock in clients:
            sock.close()
    assert slowest < 1.0, slowest


def timed_get(server: WebServer) -> float:
    started = time.monotonic()
    assert requests.get(server.url, timeout=10).status_code == 200
    return time.monotonic() - started


def test_the_client_that_kept_us_waiting_longest_makes_room() -> None:
    with serve(limits=Limits(connections=3)) as server:
        old = [dial(server) for _ in range(3)]
        assert requests.get(server.url, timeout=10).status_code == 200
        assert old[0].recv(1) == b""
        old[2].sendall(GET)
        assert old[2].recv(12) == b"HTTP/1.1 200"
        for sock in old:
            sock.close()


def test_with_all_connections_at_work_a_new_client_is_told_to_come_back() -> None:
    gate = threading.Event()

    def slow(_: Request) -> Response:
        gate.wait(10)
        return text(200, "done")

    with serve(slow, Limits(connections=2, workers=2)) as server:
        busy = [dial(server) for _ in range(2)]
        for sock in busy:
            sock.sendall(GET)
        time.sleep(0.3)
        refused = talk(server, b"")
        gate.set()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in refused
        assert all(sock.recv(12) == b"HTTP/1.1 200" for sock in busy)
        for sock in busy:
            sock.close()


@pytest.mark.parametrize("payload", [b"", b"GET / HT", GET], ids=["silent", "half a head", "idle after one"])
def test_a_client_that_stops_is_hung_up_on(payload: bytes) -> None:
    with serve(limits=QUICK) as server:
        started = time.monotonic()
        talk(server, payload)
        assert 0.5 < time.monotonic() - started < 3


def test_dripping_does_not_stretch_the_time_for_a_request() -> None:
    with serve(limits=QUICK) as server, dial(server) as sock:
        started = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT012
            while time.monotonic() - started < 5:
                sock.send(b"X")
                time.sleep(0.05)
        assert time.monotonic() - started < 3


def test_a_client_that_does_not_read_is_hung_up_on_and_others_are_served() -> None:
    big = Response(200, b"x" * (32 << 20))
    limits = Limits(workers=1, write_seconds=0.6)
    with serve(lambda request: big if request.path == "/big" else echo(request), limits) as server:
        lazy = dial(server)
        lazy.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.2)
        assert timed_get(server) < 0.5
        time.sleep(1.0)
        assert received(lazy) < len(big.body)


def test_unsent_responses_are_bounded_in_bytes() -> None:
    """Of clients that do not read, the oldest are dropped; the newest is served to the end."""
    big = Response(200, b"x" * (16 << 20))
    with serve(lambda _: big, Limits(unsent_bytes=20 << 20)) as server:
        lazy = [dial(server) for _ in range(4)]
        for sock in lazy:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            time.sleep(0.2)
        sizes = [received(sock) for sock in lazy]
        assert sizes[3] > len(big.body)
        assert all(size < len(big.body) for size in sizes[:3])


def received(sock: socket.socket) -> int:
    total = 0
    with sock:
        try:
            while data := sock.recv(1 << 20):
                total += len(data)
        except ConnectionResetError:
            pass
    return total


def test_keep_alive_serves_many_requests_on_one_connection(server: WebServer) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    ports = set()
    for number in range(20):
        connection.request("POST" if number % 2 else "GET", f"/{number}", body=b"b" * number)
        assert connection.getresponse().read().endswith(f"/{number}\n".encode())
        ports.add(connection.sock.getsockname())
    assert len(ports) == 1
    connection.close()


def test_pipelined_requests_are_answered_in_order(server: WebServer) -> None:
    heads = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5)]
    answer = talk(server, b"".join(heads) + b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    bodies = [part.split(b"\n")[0] for part in answer.split(b"\r\n\r\n")[1:]]
    assert [body.split(b"HTTP/1.1")[0].strip() for body in bodies] == [
        *(b"GET /%d" % number for number in range(5)),
        b"GET /end",
    ]


def test_a_request_in_single_bytes_is_understood(server: WebServer) -> None:
    with dial(server) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /a HTTP/1.0\r\n\r\n":
            sock.send(bytes([byte]))
            time.sleep(0.005)
        assert drain(sock).endswith(b"GET /a\n")


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", 417),
        (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"z" * 1_000_000, 431),
    ],
)
def test_bad_requests_get_their_status_and_the_connection_ends(
    server: WebServer, payload: bytes, status: int
) -> None:
    answer = talk(server, payload)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in answer


def test_an_absolute_target_is_taken_by_its_path(server: WebServer) -> None:
    answer = talk(server, b"GET http://x/metrics?a=b HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"GET /metrics\n")


def test_stop_lets_a_running_request_end_and_frees_the_port() -> None:
    begun = threading.Event()

    def slow(_: Request) -> Response:
        begun.set()
        time.sleep(0.5)
        return text(200, "done")

    server = serve(slow)
    server.start()
    with dial(server) as sock, dial(server):
        sock.sendall(GET)
        assert begun.wait(5)
        server.stop()
        assert drain(sock).endswith(b"done\n")
    with WebServer(f"127.0.0.1:{server.address[1]}", echo) as again:
        assert timed_get(again) < 1


@given(st.binary(max_size=300) | st.from_regex(rb"GET /[a-z?=]* HTTP/1\.[01]\r\n([A-Za-z]+: .*\r\n)*"))
def test_parsing_a_head_gives_a_request_or_a_bad_request(head: bytes) -> None:
    try:
        request = parse_head(head)
    except BadRequest:
        return
    assert request.path.startswith("/")
    assert request.argument("name") is not None


def test_an_answer_has_the_length_of_its_body() -> None:
    sent = encode(Response(200, "ü".encode()), head_only=False, keep_alive=True, headers={})
    assert b"Content-Length: 2\r\n" in sent
    assert sent.endswith("\r\n\r\nü".encode())
