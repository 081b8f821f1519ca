"""The server against clients that are slow, many, broken or hostile, and where it listens; real sockets."""

import http.client
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcache_exporter.errors import ConfigError, KVCacheError
from kvcache_exporter.web import WebServer
from kvcache_exporter.web.connection import Limits
from kvcache_exporter.web.endpoints import Request, Response, text
from kvcache_exporter.web.server import parse_listen, url_of

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
QUICK = Limits(connections=8, first_seconds=0.6, next_seconds=1.0)


def echo(request: Request) -> Response:
    return text(200, f"{request.method} {request.path}")


def serve(respond: Callable[[Request], Response] = echo, limits: Limits | None = None) -> WebServer:
    return WebServer("127.0.0.1:0", respond, limits=limits)


@pytest.fixture(scope="module")
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
    received = b""
    try:
        while data := sock.recv(1 << 20):
            received += data
    except ConnectionResetError:
        pass
    return received


def timed_get(server: WebServer) -> float:
    started = time.monotonic()
    assert requests.get(server.url, timeout=10).status_code == 200
    return time.monotonic() - started


def test_1000_idle_and_dripping_clients_delay_no_scrape() -> None:
    """Every kind of slow client, twice as many as there are connections."""
    with serve() as server:
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
    begun, gate = threading.Semaphore(0), threading.Event()

    def slow(_: Request) -> Response:
        begun.release()
        gate.wait(10)
        return text(200, "done")

    with serve(slow, Limits(connections=2)) as server:
        busy = [dial(server) for _ in range(2)]
        for sock in busy:
            sock.sendall(GET)
        assert all(begun.acquire(timeout=10) for _ in busy)
        refused = talk(server, GET)
        gate.set()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert all(sock.recv(12) == b"HTTP/1.1 200" for sock in busy)
        for sock in busy:
            sock.close()


@pytest.mark.parametrize("payload", [b"", b"GET / HT", GET], ids=["silent", "half a head", "idle after one"])
def test_a_client_that_stops_is_hung_up_on(payload: bytes) -> None:
    with serve(limits=QUICK) as server:
        started = time.monotonic()
        talk(server, payload)
        assert 0.5 < time.monotonic() - started < 8


@pytest.mark.parametrize("first", [b"", GET], ids=["first request", "second request"])
def test_dripping_does_not_stretch_the_time_for_a_request(first: bytes) -> None:
    with serve(limits=QUICK) as server, dial(server) as sock:
        sock.sendall(first)
        started = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT012
            while time.monotonic() - started < 20:
                sock.send(b"X")
                time.sleep(0.05)
        assert time.monotonic() - started < 15


def big(_: Request) -> Response:
    return Response(200, b"x" * (16 << 20), {})


def test_a_client_that_does_not_read_is_hung_up_on_also_with_more_requests_in_its_queue() -> None:
    with serve(big, QUICK) as server, dial(server) as lazy:
        lazy.sendall(GET * 3)
        time.sleep(2.0)
        assert len(drain(lazy)) < 16 << 20


def test_unsent_responses_are_bounded_in_bytes() -> None:
    """Of clients that do not read, the oldest are dropped; the newest is served to the end."""
    with serve(big, Limits(unsent_bytes=20 << 20)) as server:
        lazy = [dial(server) for _ in range(4)]
        for sock in lazy:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            time.sleep(0.3)
        sizes = [len(drain(sock)) for sock in lazy]
        assert sizes[3] > 16 << 20
        assert all(size < 16 << 20 for size in sizes[:3])
        for sock in lazy:
            sock.close()


def test_keep_alive_serves_many_requests_on_one_connection(server: WebServer) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    ports = set()
    for number in range(20):
        connection.request("POST" if number % 2 else "GET", f"/{number}", body=b"b" * number * 10000)
        assert connection.getresponse().read().endswith(f"/{number}\n".encode())
        ports.add(connection.sock.getsockname())
    assert len(ports) == 1
    connection.close()


def test_small_answers_wait_for_no_acknowledgement(server: WebServer) -> None:
    """Head and body go out apart, which takes 40 ms each time unless TCP_NODELAY is set."""
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    seconds = []
    for _ in range(50):
        started = time.monotonic()
        connection.request("GET", "/")
        connection.getresponse().read()
        seconds.append(time.monotonic() - started)
    assert sorted(seconds)[10] < 0.035
    connection.close()


def test_pipelined_requests_are_answered_in_order(server: WebServer) -> None:
    heads = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5)]
    answer = talk(server, b"".join(heads) + b"GET /5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert [answer.index(b"GET /%d\n" % number) for number in range(6)] == sorted(
        answer.index(b"GET /%d\n" % number) for number in range(6)
    )


def test_a_request_in_single_bytes_is_understood(server: WebServer) -> None:
    with dial(server) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /a HTTP/1.0\r\n\r\n":
            sock.send(bytes([byte]))
            time.sleep(0.005)
        assert drain(sock).endswith(b"GET /a\n")


@pytest.mark.parametrize(
    "payload",
    [
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 4000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"z" * 20000,
    ],
)
def test_bad_and_oversized_requests_are_400_and_the_connection_ends(
    server: WebServer, payload: bytes
) -> None:
    answer = talk(server, payload)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer.lower()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from([GET, GET[:20], b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"])
        | st.sampled_from([b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\n"])
        | st.sampled_from([b"GET / HTTP/1.0\r\n\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"])
        | st.binary(max_size=20),
        max_size=5,
    )
)
def test_no_bytes_break_the_server_or_fill_its_log(
    server: WebServer, caplog: pytest.LogCaptureFixture, pieces: list[bytes]
) -> None:
    caplog.clear()
    with dial(server) as sock:
        try:
            for piece in pieces:
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        drain(sock)
    assert timed_get(server) < 2
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG] == []


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


def test_a_server_leaves_signals_and_the_root_logger_alone_and_may_never_start() -> None:
    before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), logging.root.handlers[:])
    with serve() as server:
        timed_get(server)
        during = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), logging.root.handlers[:])
    assert before == during
    serve().stop()


def test_ipv6_is_served() -> None:
    try:
        server = WebServer("[::1]:0", echo)
    except KVCacheError:
        pytest.skip("no IPv6 on this machine")
    with server:
        assert server.url.startswith("http://[::1]:")
        assert timed_get(server) < 2


def test_an_address_of_another_machine_is_no_port_in_use() -> None:
    with pytest.raises(
        KVCacheError, match="Cannot assign requested address; this machine has no such address"
    ):
        WebServer("192.0.2.1:0", echo)


def test_a_taken_port_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(KVCacheError) as caught:
            WebServer(place, echo)
    assert str(caught.value) == (
        f"cannot listen on {place}: Address already in use; "
        "stop what uses it or choose another --web.listen-address"
    )


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        (":9409", ("", 9409)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9409", ("::1", 9409)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_listen_addresses(address: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(address) == parsed


@pytest.mark.parametrize(
    "address",
    ["", "9409", "::1:9409", "[::1]", "host:", "host:70000", "host:-1", "h:٣", "h:80/x", "http://h:80"],
)
def test_malformed_listen_addresses_say_so(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^--web\.listen-address: expected "):
        parse_listen(address)


def test_a_host_without_an_address_is_told() -> None:
    with pytest.raises(KVCacheError, match=r"^cannot listen on nowhere\.invalid:1: "):
        WebServer("nowhere.invalid:1", echo)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (("::", 9409), "https://127.0.0.1:9409"),
        (("0.0.0.0", 80), "https://127.0.0.1:80"),
        (("::1", 1), "https://[::1]:1"),
        (("10.0.0.1", 1), "https://10.0.0.1:1"),
    ],
)
def test_the_url_is_one_that_can_be_asked(address: tuple[str, int], url: str) -> None:
    assert url_of(address, "https") == url
