"""TLS over real sockets: client certificates, rotation, versions, unfinished handshakes."""

import ipaddress
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests
from cryptography import x509

from certificates import Authority, authority
from kvcache_exporter.web import WebConfig, WebServer
from kvcache_exporter.web import config as web_config
from kvcache_exporter.web.connection import Limits
from kvcache_exporter.web.endpoints import Request, Response, text
from kvcache_exporter.web.tls import CIPHERS, CURVES

REQUEST = b"GET / HTTP/1.0\r\n\r\n"
Respond = Callable[[Request], Response]
CLIENT_AUTH = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n"


def echo(request: Request) -> Response:
    return text(200, request.path)


@pytest.fixture
def ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setattr(web_config, "READ_SECONDS", 0.0)
    made = authority(tmp_path)
    made.issue("server", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    made.issue("client", x509.DNSName("prometheus.example"), x509.IPAddress(ipaddress.ip_address("::1")))
    return made


@contextmanager
def serve(
    ca: Authority, extra: str = "", limits: Limits | None = None, respond: Respond = echo
) -> Iterator[WebServer]:
    file = ca.folder / "web.yml"
    file.write_text(f"tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n{extra}")
    with WebServer("127.0.0.1:0", respond, WebConfig(file), limits) as server:
        yield server


def client(ca: Authority, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca.folder / "ca.pem"))
    if name:
        context.load_cert_chain(ca.folder / f"{name}.pem", ca.folder / f"{name}.key")
    return context


def ask(server: WebServer, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection(server.address, timeout=10) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(REQUEST)
        return b"".join(iter(lambda: secured.recv(65536), b""))


def serial(server: WebServer, context: ssl.SSLContext) -> str:
    with (
        socket.create_connection(server.address, timeout=10) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
    ):
        return str((secured.getpeercert() or {})["serialNumber"])


def test_https_serves_many_requests_on_one_connection(ca: Authority) -> None:
    with serve(ca) as server, requests.Session() as session:
        assert server.url.startswith("https://")
        session.trust_env = False
        session.verify = str(ca.folder / "ca.pem")
        answers = [session.post(server.url + "/a", data=b"b" * size, timeout=10) for size in (0, 1, 40000)]
        assert [answer.text for answer in answers] == ["/a\n"] * 3


def test_a_big_page_comes_through_tls_whole(ca: Authority) -> None:
    page = Response(200, bytes(range(256)) * 20000, {})
    with serve(ca, respond=lambda _: page) as server:
        answer = ask(server, client(ca))
    assert answer.endswith(b"\r\n\r\n" + page.body)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken_by_default(ca: Authority, version: ssl.TLSVersion) -> None:
    context = client(ca)
    context.minimum_version = context.maximum_version = version
    with serve(ca) as server:
        assert ask(server, context).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "extra",
    ["  min_version: TLS13\n", "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n"],
    ids=["by version", "by cipher suites of TLS 1.3 alone"],
)
def test_tls_1_2_can_be_refused(ca: Authority, extra: str) -> None:
    context = client(ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serve(ca, extra) as server:
        assert refused(server, context)
        assert not refused(server, client(ca))


def test_only_the_chosen_cipher_suite_is_spoken(ca: Authority) -> None:
    chosen = "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n  max_version: TLS12\n"
    context = client(ca)
    with serve(ca, chosen) as server:
        with (
            socket.create_connection(server.address, timeout=10) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
        ):
            assert (secured.cipher() or ("",))[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        assert refused(server, context)


def test_openssl_knows_every_cipher_and_curve_that_is_offered() -> None:
    for name in CIPHERS.values():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(name)
        assert name in [cipher["name"] for cipher in context.get_ciphers()]
    for name in CURVES.values():
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(name)


def refused(server: WebServer, context: ssl.SSLContext) -> bool:
    """asyncio hangs up without saying why."""
    try:
        return ask(server, context) == b""
    except OSError:
        return True


def test_a_client_without_a_certificate_is_refused(ca: Authority) -> None:
    with serve(ca, CLIENT_AUTH) as server:
        assert ask(server, client(ca, "client")).startswith(b"HTTP/1.1 200 ")
        assert refused(server, client(ca))


def test_a_client_of_another_authority_is_refused(ca: Authority) -> None:
    other = authority(ca.folder, "other")
    other.issue("stranger", x509.DNSName("prometheus.example"))
    given = CLIENT_AUTH.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    for extra in (CLIENT_AUTH, given):
        with serve(ca, extra) as server:
            assert refused(server, client(ca, "stranger"))
    with serve(ca, given) as server:
        assert ask(server, client(ca)).startswith(b"HTTP/1.1 200 ")


def test_a_rotated_authority_decides_about_the_next_client(ca: Authority) -> None:
    """The whole context is a new one; a callback for SNI would change certificates only."""
    other = authority(ca.folder, "other")
    other.issue("stranger", x509.DNSName("prometheus.example"))
    with serve(ca, CLIENT_AUTH) as server:
        context, stranger = client(ca, "client"), client(ca, "stranger")
        shutil.copy(ca.folder / "other.pem", ca.folder / "ca.pem")
        assert refused(server, context)
        assert ask(server, stranger).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("names", "admitted"),
    [("[prometheus.example]", True), ('["::1"]', True), ("[a, prometheus.exampl, EXAMPLE]", False)],
)
def test_only_clients_with_an_allowed_san_are_served(ca: Authority, names: str, admitted: bool) -> None:
    with serve(ca, f"{CLIENT_AUTH}  client_allowed_sans: {names}\n") as server:
        assert refused(server, client(ca, "client")) != admitted


def test_a_rotated_certificate_is_used_for_the_next_connection(ca: Authority) -> None:
    context = client(ca)
    with serve(ca) as server:
        before = serial(server, context)
        assert serial(server, context) == before
        ca.issue("server", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        assert serial(server, context) != before


def test_a_certificate_without_its_key_leaves_the_old_pair_until_the_key_comes(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    context = client(ca)
    with serve(ca) as server:
        before = serial(server, context)
        ca.issue("next", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        shutil.copy(ca.folder / "next.pem", ca.folder / "server.pem")
        assert [serial(server, context) for _ in range(3)] == [before] * 3
        assert caplog.text.count("not reloaded, the old one stays") == 1
        assert "KEY_VALUES_MISMATCH" in caplog.text
        shutil.copy(ca.folder / "next.key", ca.folder / "server.key")
        assert serial(server, context) != before


def test_a_file_that_loses_its_tls_section_does_not_go_plain(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(ca) as server:
        (ca.folder / "web.yml").write_text("")
        assert ask(server, client(ca)).startswith(b"HTTP/1.1 200 ")
    assert "tls_server_config: gone from the file" in caplog.text


def test_a_plain_client_gets_no_answer(ca: Authority) -> None:
    with serve(ca) as server, socket.create_connection(server.address, timeout=10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert gone(sock)


def gone(sock: socket.socket) -> bool:
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


def unfinished(stack: ExitStack, address: tuple[str, int], count: int) -> list[socket.socket]:
    socks = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(count)]
    for sock in socks:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    return socks


def test_unfinished_handshakes_count_as_connections(ca: Authority) -> None:
    """The oldest go at once when there are too many; nobody waits for their time to be over."""
    with serve(ca, limits=Limits(connections=50, first_seconds=600.0)) as server, ExitStack() as stack:
        socks = unfinished(stack, server.address, 100)
        assert ask(server, client(ca)).startswith(b"HTTP/1.1 200 ")
        assert all(gone(sock) for sock in socks[:50])


def test_unfinished_handshakes_end(ca: Authority) -> None:
    with serve(ca, limits=Limits(connections=50, first_seconds=0.5)) as server, ExitStack() as stack:
        assert all(gone(sock) for sock in unfinished(stack, server.address, 20))
