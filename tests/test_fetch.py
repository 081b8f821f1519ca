"""Fetching a page from real servers on this machine, friendly, broken and hostile."""

import contextlib
import datetime as dt
import gzip
import ipaddress
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import wait_until

from kvcache_exporter.catalogue import SCRAPE_FAILURE_REASONS
from kvcache_exporter.config import BasicAuth, HttpSettings, TlsSettings
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.scrape.fetch import Fetcher

PAGE = b"# TYPE x counter\nx_total 1\n" * 50
Answer = Callable[[socket.socket, bytes], None]


class Server:
    """Reads requests from each connection and leaves every byte of what comes back to `answer`."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.stop = threading.Event()
        self._answer = answer
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}/metrics"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.stop.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with plain, contextlib.suppress(OSError):
            connection = self._context.wrap_socket(plain, server_side=True) if self._context else plain
            with connection:
                while request := self._request(connection):
                    self.requests.append(request)
                    self._answer(connection, request)

    def _request(self, connection: socket.socket) -> bytes:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            received = connection.recv(65536)
            if not received:
                return b""
            request += received
        return request


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(answer: Answer, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(answer, context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def whole(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return head(f"Content-Length: {len(body)}", *headers, status=status) + body


def says(data: bytes, *, then_close: bool = False) -> Answer:
    def answer(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(data)
        if then_close:
            connection.shutdown(socket.SHUT_RDWR)

    return answer


@contextlib.contextmanager
def fetcher(
    url: str, http: HttpSettings | None = None, timeout: float = 5.0, max_page_bytes: int = 1 << 20
) -> Iterator[Fetcher]:
    made = Fetcher(url, http=http, timeout=timeout, max_page_bytes=max_page_bytes)
    try:
        yield made
    finally:
        made.close()


def failure(url: str, **options: object) -> ScrapeError:
    with fetcher(url, **options) as made, pytest.raises(ScrapeError) as caught:  # type: ignore[arg-type]
        made.fetch()
    assert caught.value.reason in SCRAPE_FAILURE_REASONS
    return caught.value


CHUNKED = b"".join(b"%x\r\n%b\r\n" % (len(PAGE[i : i + 100]), PAGE[i : i + 100]) for i in range(0, 1350, 100))


@pytest.mark.parametrize(
    ("data", "closes"),
    [
        (whole(PAGE), False),
        (whole(gzip.compress(PAGE), "Content-Encoding: gzip"), False),
        (whole(gzip.compress(PAGE[:99]) + gzip.compress(PAGE[99:]), "Content-Encoding: GZIP"), False),
        (head("Transfer-Encoding: chunked") + CHUNKED + b"0\r\n\r\n", False),
        (head("Connection: close") + PAGE, True),
        (whole(PAGE, "Connection: close"), True),
        (head("Content-Encoding: gzip") + gzip.compress(PAGE), True),
        (b"HTTP/1.0 200 OK\r\n\r\n" + PAGE, True),
        (head(status="100 Continue") + whole(PAGE), False),
    ],
    ids=("length", "gzip", "members", "chunked", "close", "both", "gzip_close", "http10", "continue"),
)
def test_every_framing_gives_the_same_page(serve: Serve, data: bytes, closes: bool) -> None:
    server = serve(says(data, then_close=closes))
    with fetcher(server.url) as made:
        assert [made.fetch(), made.fetch()] == [PAGE, PAGE]
    assert server.connections == (2 if closes else 1)


def test_an_empty_page_with_a_length_is_a_page(serve: Serve) -> None:
    server = serve(says(whole(b"")))
    with fetcher(server.url) as made:
        assert made.fetch() == b""


def test_the_request_prefers_plain_text_and_says_who_asks_and_how_long(serve: Serve) -> None:
    server = serve(says(whole(PAGE)))
    with fetcher(server.url, timeout=2.5) as made:
        made.fetch()
    lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /metrics HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in lines
    assert (
        "Accept: text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1" in lines
    )
    assert "Accept-Encoding: gzip" in lines
    assert "X-Prometheus-Scrape-Timeout-Seconds: 2.5" in lines
    assert any(line.startswith("User-Agent: kvcache-exporter/") for line in lines)


def test_cookies_are_not_kept(serve: Serve) -> None:
    server = serve(says(whole(PAGE, "Set-Cookie: a=b")))
    with fetcher(server.url) as made:
        made.fetch()
        made.fetch()
    assert b"Cookie" not in server.requests[1]


def test_proxies_and_netrc_of_the_environment_are_ignored(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server = serve(says(whole(PAGE)))
    with fetcher(server.url) as made:
        assert made.fetch() == PAGE
    assert b"Authorization" not in server.requests[0]


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(serve: Serve) -> None:
    """As uvicorn does after five idle seconds, sometimes in the moment the next request arrives."""

    def answer(connection: socket.socket, _request: bytes) -> None:
        if len(server.requests) == 2:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(whole(PAGE))

    server = serve(answer)
    with fetcher(server.url) as made:
        assert [made.fetch(), made.fetch()] == [PAGE, PAGE]
    assert (server.connections, len(server.requests)) == (2, 3)


def test_a_server_that_always_closes_is_asked_once(serve: Serve) -> None:
    server = serve(says(b"", then_close=True))
    assert failure(server.url).reason == "connection"
    assert len(server.requests) == 1


def waits(first: bytes, drip: bytes) -> Answer:
    """Sends `first`, then `drip` byte by byte for longer than anybody waits."""

    def answer(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(first)
        for _ in range(200):
            time.sleep(0.05)
            if drip:
                connection.sendall(drip)

    return answer


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"", b""),
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
        (head("Content-Length: 100000"), b"x"),
        (head("Connection: close"), b"x\n"),
        (head("Transfer-Encoding: chunked"), b"1\r\nx\r\n"),
        (head("Transfer-Encoding: chunked") + b"fff\r\n", b"x"),
        (b"", head(status="100 Continue")),
        (whole(PAGE)[:-1], b""),
    ],
    ids=(
        "hung",
        "status",
        "header",
        "headers",
        "length",
        "close",
        "chunks",
        "chunk",
        "continue",
        "last_byte",
    ),
)
def test_however_slowly_a_server_sends_the_deadline_holds(serve: Serve, first: bytes, drip: bytes) -> None:
    server = serve(waits(first, drip))
    began = time.monotonic()
    error = failure(server.url, timeout=0.3)
    assert 0.25 < time.monotonic() - began < 5.0
    assert (error.reason, str(error)) == ("timeout", f"{server.url}: no whole page within 0.3s")


def test_a_hung_tls_handshake_ends_at_the_deadline(serve: Serve) -> None:
    server = serve(waits(b"", b""))
    began = time.monotonic()
    error = failure(server.url.replace("http", "https"), timeout=0.3)
    assert error.reason == "timeout"
    assert time.monotonic() - began < 5.0


def ended_by_close(server: Server, http: HttpSettings | None = None) -> float:
    """Seconds until a fetch that would last for a minute has ended, once it is closed from outside."""
    failures: list[ScrapeError] = []
    with fetcher(server.url, http, timeout=60.0) as made:

        def fetch() -> None:
            with pytest.raises(ScrapeError) as caught:
                made.fetch()
            failures.append(caught.value)

        thread = threading.Thread(target=fetch, daemon=True)
        thread.start()
        wait_until("the request", lambda: bool(server.requests))
        began = time.monotonic()
        made.close()
        thread.join(20.0)
    assert len(failures) == 1
    return time.monotonic() - began


def test_a_fetch_ends_when_it_is_closed_from_another_thread(serve: Serve, authority: "Authority") -> None:
    """Or the end of the process would wait for the timeout of a target that hangs."""
    assert ended_by_close(serve(waits(b"", b""))) < 5.0
    assert ended_by_close(serve(waits(head(), b"x"))) < 5.0
    context = authority.server_context(authority.issue("engine", LOCAL))
    assert ended_by_close(serve(waits(b"", b""), context), with_tls(ca_file=authority.file)) < 5.0


def test_after_a_timeout_the_next_page_is_not_mixed_with_the_last(serve: Serve) -> None:
    def answer(connection: socket.socket, _request: bytes) -> None:
        if len(server.requests) == 1:
            connection.sendall(head("Content-Length: 10") + b"old")
            time.sleep(0.4)
            connection.sendall(b"old old")
        else:
            connection.sendall(whole(PAGE))

    server = serve(answer)
    with fetcher(server.url, timeout=0.2) as made:
        with pytest.raises(ScrapeError):
            made.fetch()
        assert made.fetch() == PAGE


LIMIT = 1 << 16
BOMB = gzip.compress(b"\0" * (50 << 20))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (head("Content-Length: 99999999999"), "too_large"),
        (head("Transfer-Encoding: chunked") + b"20000\r\n" + b"x" * 0x20000 + b"\r\n0\r\n\r\n", "too_large"),
        (head("Connection: close") + b"x" * (LIMIT + 1), "too_large"),
        (whole(BOMB, "Content-Encoding: gzip"), "too_large"),
        (whole(gzip.compress(b"") * 17, "Content-Encoding: gzip"), "encoding"),
        (whole(PAGE, "Content-Encoding: gzip"), "encoding"),
        (whole(gzip.compress(PAGE) + b"xx", "Content-Encoding: gzip"), "encoding"),
        (whole(zlib.compress(PAGE), "Content-Encoding: deflate"), "encoding"),
        (whole(PAGE, "Content-Encoding: br"), "encoding"),
        (whole(gzip.compress(PAGE)[:-9], "Content-Encoding: gzip"), "truncated"),
        (head("Content-Length: 5000") + PAGE, "truncated"),
        (head("Transfer-Encoding: chunked") + b"fff\r\n" + PAGE, "truncated"),
        (head("Transfer-Encoding: chunked") + CHUNKED, "truncated"),
        (head("Transfer-Encoding: chunked") + b"zz\r\n", "truncated"),
        (head("Connection: close") + PAGE[:-1], "truncated"),
        (head("Connection: close"), "truncated"),
        (whole(b"<html>", "Content-Type: text/html; charset=utf-8"), "not_metrics"),
        (whole(b"{}", "Content-Type: Application/JSON"), "not_metrics"),
        (whole(b"", status="500 Internal Server Error"), "http_status"),
        (whole(b"", status="204 No Content"), "http_status"),
        (whole(b"", status="404 Not Found"), "http_status"),
        (whole(b"", status="401 Unauthorized"), "credentials"),
        (whole(b"", status="403 Forbidden"), "credentials"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "connection"),
        (b"\0" * 100, "connection"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "connection"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n", "connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nx", "truncated"),
    ],
)
def test_what_is_no_usable_page_has_a_closed_reason(serve: Serve, data: bytes, reason: str) -> None:
    server = serve(says(data, then_close=True))
    error = failure(server.url, max_page_bytes=LIMIT)
    assert error.reason == reason
    assert str(error).startswith(f"{server.url}: ")


def test_a_page_of_exactly_the_limit_is_let_through(serve: Serve) -> None:
    page = b"x" * (LIMIT - 1) + b"\n"
    plain, packed = (
        serve(says(whole(page))),
        serve(says(whole(gzip.compress(page), "Content-Encoding: gzip"))),
    )
    for server in (plain, packed):
        with fetcher(server.url, max_page_bytes=LIMIT) as made:
            assert made.fetch() == page


@pytest.mark.parametrize(
    "status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Moved"]
)
def test_a_redirect_is_not_followed_and_says_where_to_without_secrets(serve: Serve, status: str) -> None:
    elsewhere = serve(says(whole(PAGE)))
    location = f"Location: http://me:hunter2@127.0.0.1:{elsewhere.port}/m?token=hunter2"
    error = failure(serve(says(whole(b"", location, status=status))).url)
    assert error.reason == "redirect"
    assert f"redirected to http://127.0.0.1:{elsewhere.port}/m; configure" in str(error)
    assert "hunter2" not in str(error)
    assert elsewhere.connections == 0


def test_nobody_listening_is_a_connection_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = failure(f"http://127.0.0.1:{port}/metrics")
    assert error.reason == "connection"
    assert "connection refused; check that the engine runs" in str(error)


@pytest.mark.parametrize("host", ["name.invalid", "a..b", "x" * 70 + ".invalid"])
def test_a_name_that_does_not_resolve_says_so(host: str) -> None:
    error = failure(f"http://{host}:1/metrics", timeout=3)
    assert error.reason == "lookup"


def test_a_query_is_sent_but_never_shown(serve: Serve) -> None:
    server = serve(says(whole(b"", status="500 Oops")))
    error = failure(server.url + "?token=hunter2")
    assert server.requests[0].startswith(b"GET /metrics?token=hunter2 ")
    assert "hunter2" not in str(error)


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.sampled_from([
            b"HTTP/1.1 200 OK\r\n", b"Content-Length: 3\r\n", b"Content-Length: -1\r\n", b"\r\n", b"abc",
            b"Transfer-Encoding: chunked\r\n", b"3\r\n", b"0\r\n", b"Content-Encoding: gzip\r\n", b"\xff\0",
            b"HTTP/1.1 304 Not Modified\r\n", b"HTTP/1.1 999 \r\n", b"Content-Type: \xff\r\n", b": \r\n",
            b" x\r\n", b"a\n",
        ]) | st.binary(max_size=20),
        max_size=8,
    )
)  # fmt: skip
def test_whatever_a_server_says_it_is_a_page_or_a_scrape_error(data: list[bytes]) -> None:
    server = Server(says(b"".join(data), then_close=True))
    try:
        with fetcher(server.url, timeout=2) as made:
            assert isinstance(made.fetch(), bytes)
    except ScrapeError as error:
        reason = error.reason
    else:
        return
    finally:
        server.close()
    assert reason in SCRAPE_FAILURE_REASONS


def wants(header: str) -> Answer:
    def answer(connection: socket.socket, request: bytes) -> None:
        allowed = f"\r\nAuthorization: {header}\r\n".encode() in request
        connection.sendall(whole(PAGE) if allowed else whole(b"", status="401 Unauthorized"))

    return answer


def test_a_bearer_token_is_read_again_when_its_file_changes(serve: Serve, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    server = serve(wants("Bearer new"))
    with fetcher(server.url, HttpSettings(bearer_token_file=str(token))) as made:
        with pytest.raises(ScrapeError, match="HTTP status 401; check bearer_token_file") as caught:
            made.fetch()
        assert caught.value.reason == "credentials"
        token.write_text("new\n")
        os.utime(token, ns=(1, 1))
        assert made.fetch() == PAGE


def test_basic_authentication_takes_the_password_from_its_file(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    server = serve(wants("Basic bWU6b3BlbiBzZXNhbWU="))
    auth = BasicAuth(username="me", password_file=str(tmp_path / "password"))
    with fetcher(server.url, HttpSettings(basic_auth=auth)) as made:
        assert made.fetch() == PAGE


@pytest.mark.parametrize("content", [b"", b" \n", b"hunter2\r\nX-Evil: 1\n", b"hunter2\xff"])
def test_a_file_without_a_usable_secret_is_never_sent_nor_shown(
    serve: Serve, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "token").write_bytes(content)
    server = serve(says(whole(PAGE)))
    error = failure(server.url, http=HttpSettings(bearer_token_file=str(tmp_path / "token")))
    assert error.reason == "credentials"
    assert str(tmp_path / "token") in str(error)
    assert "hunter2" not in str(error)
    assert server.requests == []


def test_a_missing_secret_file_is_named(tmp_path: Path) -> None:
    error = failure("http://127.0.0.1:1/", http=HttpSettings(bearer_token_file=str(tmp_path / "token")))
    assert (error.reason, str(error)) == (
        "credentials",
        f"http://127.0.0.1:1/: cannot read {tmp_path}/token: No such file or directory",
    )


class Authority:
    """A certificate authority in a folder; `issue` writes <name>.pem with certificate and key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"CA of {folder.name}")])
        self.file = str(folder / "ca.pem")
        certificate = self._build(self.name, self.key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), True
        )
        Path(self.file).write_bytes(self._sign(certificate))

    def issue(self, name: str, *alternatives: x509.GeneralName) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = self._build(subject, key).add_extension(
            x509.SubjectAlternativeName(alternatives), False
        )
        file = self.folder / f"{name}.pem"
        kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file.write_bytes(self._sign(certificate) + key.private_bytes(serialization.Encoding.PEM, kind, plain))
        return str(file)

    def server_context(self, certificate: str, *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.file)
        context.load_cert_chain(certificate)
        context.verify_mode = ssl.CERT_REQUIRED if wants_client else ssl.CERT_NONE
        return context

    def _build(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
        )

    def _sign(self, certificate: x509.CertificateBuilder) -> bytes:
        return certificate.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


LOCAL = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def with_tls(**settings: object) -> HttpSettings:
    return HttpSettings(tls=TlsSettings(**settings))  # type: ignore[arg-type]


def test_a_certificate_of_the_named_authority_is_trusted_and_its_connection_kept(
    serve: Serve, authority: Authority
) -> None:
    server = serve(says(whole(PAGE)), authority.server_context(authority.issue("engine", LOCAL)))
    with fetcher(server.url, with_tls(ca_file=authority.file)) as made:
        assert [made.fetch(), made.fetch()] == [PAGE, PAGE]
    assert server.connections == 1


def test_a_certificate_of_an_unknown_authority_is_refused(serve: Serve, authority: Authority) -> None:
    server = serve(says(whole(PAGE)), authority.server_context(authority.issue("engine", LOCAL)))
    error = failure(server.url)
    assert error.reason == "tls"
    assert "certificate is not trusted: self-signed certificate in certificate chain; check ca_file" in str(
        error
    )


def test_the_name_in_the_certificate_must_be_the_host_or_server_name(
    serve: Serve, authority: Authority
) -> None:
    certificate = authority.issue("engine", x509.DNSName("engine.llm.svc"))
    server = serve(says(whole(PAGE)), authority.server_context(certificate))
    error = failure(server.url, http=with_tls(ca_file=authority.file))
    assert error.reason == "tls"
    assert "IP address mismatch" in str(error)
    wrong = failure(server.url, http=with_tls(ca_file=authority.file, server_name="other.llm.svc"))
    assert "Hostname mismatch" in str(wrong)
    with fetcher(server.url, with_tls(ca_file=authority.file, server_name="engine.llm.svc")) as made:
        assert made.fetch() == PAGE


def test_verification_can_be_switched_off(serve: Serve, authority: Authority) -> None:
    server = serve(says(whole(PAGE)), authority.server_context(authority.issue("other")))
    with fetcher(server.url, with_tls(insecure_skip_verify=True)) as made:
        assert made.fetch() == PAGE


def test_a_client_certificate_is_shown_to_a_server_that_wants_one(serve: Serve, authority: Authority) -> None:
    certificate, client = authority.issue("engine", LOCAL), authority.issue("exporter")
    server = serve(says(whole(PAGE)), authority.server_context(certificate, wants_client=True))
    assert failure(server.url, http=with_tls(ca_file=authority.file)).reason == "tls"
    both = with_tls(ca_file=authority.file, cert_file=client, key_file=client)
    with fetcher(server.url, both) as made:
        assert made.fetch() == PAGE


def test_an_authority_that_is_replaced_in_its_file_is_read_again(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    server = serve(says(whole(PAGE)), new.server_context(new.issue("engine", LOCAL)))
    with fetcher(server.url, with_tls(ca_file=old.file)) as made:
        with pytest.raises(ScrapeError, match="not trusted"):
            made.fetch()
        Path(new.file).replace(old.file)
        assert made.fetch() == PAGE


@pytest.mark.parametrize("key", ["ca_file", "cert_file"])
def test_a_file_that_is_no_certificate_is_named(tmp_path: Path, key: str) -> None:
    (tmp_path / "x.pem").write_text("hunter2")
    files = {key: str(tmp_path / "x.pem")} | (
        {"key_file": str(tmp_path / "x.pem")} if key == "cert_file" else {}
    )
    error = failure("https://127.0.0.1:1/", http=with_tls(**files))
    assert error.reason == "tls"
    assert f"{key} {tmp_path}/x.pem" in str(error)


def test_tls_to_a_plain_server_and_plain_to_a_tls_server_say_what_is_wrong(
    serve: Serve, authority: Authority
) -> None:
    plain = serve(says(whole(PAGE)))
    error = failure(plain.url.replace("http", "https"), timeout=1)
    assert error.reason in {"tls", "timeout"}
    secure = serve(says(whole(PAGE)), authority.server_context(authority.issue("engine", LOCAL)))
    assert failure(secure.url.replace("https", "http"), timeout=1).reason == "connection"


def test_ipv6_addresses_are_reached() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        thread = threading.Thread(target=lambda: answer_once(listener))
        thread.start()
        with fetcher(f"http://[::1]:{listener.getsockname()[1]}/metrics") as made:
            assert made.fetch() == PAGE
        thread.join()


def answer_once(listener: socket.socket) -> None:
    accepted, _ = listener.accept()
    with accepted:
        accepted.recv(65536)
        accepted.sendall(whole(PAGE))
