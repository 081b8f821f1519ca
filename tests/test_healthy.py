"""`healthy` against the real server: plain, with passwords, TLS and client certificates, and nobody there."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest

from certificates import authority
from kvcache_exporter.cli import main
from kvcache_exporter.web import WebConfig, WebServer
from kvcache_exporter.web.endpoints import Request, Response, text
from test_web_tls import CLIENT_AUTH

TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
PASSWORD = "basic_auth_users: {{a: '{}'}}\n".format(bcrypt.hashpw(b"a", bcrypt.gensalt(4)).decode())


def respond(request: Request) -> Response:
    return text(200 if request.path == "/-/healthy" else 404, "healthy")


@contextmanager
def serving(folder: Path, settings: str) -> Iterator[str]:
    authority(folder).issue("server")
    (folder / "web.yml").write_text(settings)
    with WebServer("127.0.0.1:0", respond, WebConfig(folder / "web.yml") if settings else None) as server:
        yield f"127.0.0.1:{server.address[1]}"


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ("", "healthy"),
        (PASSWORD, "healthy: asks for a password"),
        (TLS, "healthy"),
        (TLS + PASSWORD, "healthy: asks for a password"),
        (TLS + CLIENT_AUTH, "healthy: asks for a client certificate"),
    ],
)
def test_any_answer_is_a_sign_of_life(
    settings: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, settings) as address:
        assert main(["healthy", "--web.listen-address", address]) == 0
    assert capsys.readouterr().out == f"{answer}\n"


def test_every_interface_means_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, "") as address:
        port = address.rpartition(":")[2]
        for host in ("", "0.0.0.0", "[::]", "127.0.0.1"):
            assert main(["healthy", "--web.listen-address", f"{host}:{port}"]) == 0
    assert capsys.readouterr().out == "healthy\n" * 4


def test_a_closed_port_is_no_sign_of_life(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert main(["healthy", "--web.listen-address", f"127.0.0.1:{port}"]) == 1
    assert f"127.0.0.1:{port}: no answer from /-/healthy: Connection refused;" in capsys.readouterr().err


@pytest.mark.timeout(20)
def test_silence_is_no_sign_of_life(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert main(["healthy", "--web.listen-address", address, "--timeout", "200ms"]) == 1
    assert "timed out" in capsys.readouterr().err


def test_a_fault_is_no_sign_of_life(capsys: pytest.CaptureFixture[str]) -> None:
    with WebServer("127.0.0.1:0", lambda _: text(500, "oops")) as server:
        assert main(["healthy", "--web.listen-address", f"127.0.0.1:{server.address[1]}"]) == 1
    assert "status 500" in capsys.readouterr().err


def test_an_address_that_is_none_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["healthy", "--web.listen-address", "9409"]) == 2
    assert "expected host:port" in capsys.readouterr().err
