"""Basic authentication: who is let in, and that it is cheap for the scraper and equal for guessers."""

import base64
import threading
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import requests

from kvcache_exporter.web import WebConfig, WebServer
from kvcache_exporter.web import config as web_config
from kvcache_exporter.web.auth import BasicAuth
from kvcache_exporter.web.endpoints import PROBES, Request, Response, text

ANN = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
PATHS = ["/", "/metrics", "/-/healthy", "/nope", "/api/v1/summary", "/assets/0abc/page.css"]


def echo(request: Request) -> Response:
    return text(200, request.path)


def header(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that were given to bcrypt."""
    seen: list[bytes] = []
    original = bcrypt.checkpw

    def counted(password: bytes, expected: bytes) -> bool:
        seen.append(password)
        return original(password, expected)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    return seen


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(web_config, "READ_SECONDS", 0.0)
    file = tmp_path / "web.yml"
    file.write_text(f"basic_auth_users:\n  ann: {ANN}\n")
    return file


@pytest.fixture
def server(file: Path) -> Iterator[WebServer]:
    with WebServer("127.0.0.1:0", echo, WebConfig(file)) as running:
        yield running


@pytest.mark.parametrize("credentials", [None, ("ann", "wrong"), ("bob", "open sesame"), ("ann", "")])
def test_no_path_answers_without_the_right_password(
    server: WebServer, credentials: tuple[str, str] | None
) -> None:
    for path in PATHS:
        answer = requests.get(server.url + path, auth=credentials, timeout=10)
        assert (answer.status_code, answer.text) == (401, "unauthorized\n")
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="kvcache-exporter"'


def test_open_paths_answer_without_a_password_and_no_other_does(file: Path, hashed: list[bytes]) -> None:
    with WebServer("127.0.0.1:0", echo, WebConfig(file), open_paths=PROBES) as running:
        for path in (*PATHS, "/-/ready", "/-/healthy/", "/-/HEALTHY", "//-/ready", "/-/ready%20"):
            status = requests.get(running.url + path, timeout=10).status_code
            assert status == (200 if path in {"/-/healthy", "/-/ready"} else 401), path
    assert hashed == []


def test_every_path_answers_with_the_right_password_for_one_bcrypt(
    server: WebServer, hashed: list[bytes]
) -> None:
    for path in PATHS:
        assert requests.get(server.url + path, auth=("ann", "open sesame"), timeout=10).text == f"{path}\n"
    assert hashed == [b"open sesame"]


def test_a_changed_password_is_asked_for_at_the_next_request(server: WebServer, file: Path) -> None:
    with requests.Session() as session:
        session.auth = ("ann", "open sesame")
        assert session.get(server.url, timeout=10).status_code == 200
        other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
        file.write_text(f"basic_auth_users:\n  ann: {other}\n")
        assert session.get(server.url, timeout=10).status_code == 401
        session.auth = ("ann", "other")
        assert session.get(server.url, timeout=10).status_code == 200


def test_an_unknown_user_costs_the_same_bcrypt_as_a_wrong_password(hashed: list[bytes]) -> None:
    users = BasicAuth({"ann": ANN})
    for user in ("ann", "bob"):
        assert [users.known(header(user, "x")), users.check(header(user, "x"))] == [None, False]
    assert hashed == [b"x", b"x"]


def test_an_unknown_user_with_a_known_users_password_is_refused() -> None:
    users = BasicAuth({"ann": ANN})
    assert users.check(header("bob", "open sesame")) is False
    assert users.known(header("bob", "open sesame")) is None


def test_guesses_do_not_push_a_scraper_out() -> None:
    users = BasicAuth({"ann": ANN})
    assert users.check(header("ann", "open sesame"))
    assert not any(users.check(header("ann", str(number))) for number in range(50))
    assert users.known(header("ann", "open sesame")) is True


@pytest.mark.parametrize(
    "value",
    ["", "Basic", "Basic !!!", "Bearer abc", "Basic " + base64.b64encode(b"nocolon").decode(), "Basic ü"],
)
def test_malformed_credentials_are_refused_without_bcrypt(value: str, hashed: list[bytes]) -> None:
    assert BasicAuth({"ann": ANN}).known(value) is False
    assert hashed == []


def test_long_passwords_and_colons_and_other_alphabets_work() -> None:
    for password in ("x" * 100, "a:b:c", "пароль", "nul\0byte"):
        value = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()
        users = BasicAuth({"ann": value.replace("$2b$", "$2y$")})
        assert users.check(header("ann", password))
        assert not users.check(header("ann", password[:-40] + "!"))


def test_a_known_scraper_passes_those_who_guess(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While bcrypt is stuck in a guess and more guesses wait, whoever is in the cache is served."""
    guessing, gate = threading.Event(), threading.Event()
    original = bcrypt.checkpw

    def stuck(password: bytes, expected: bytes) -> bool:
        if password.startswith(b"guess"):
            guessing.set()
            gate.wait(20)
        return original(password, expected)

    monkeypatch.setattr(bcrypt, "checkpw", stuck)
    assert requests.get(server.url, auth=("ann", "open sesame"), timeout=10).status_code == 200
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda number=number: statuses.append(guess(server, number)))
        for number in range(40)
    ]
    for thread in threads:
        thread.start()
    assert guessing.wait(10)
    assert requests.get(server.url, auth=("ann", "open sesame"), timeout=10).status_code == 200
    gate.set()
    for thread in threads:
        thread.join()
    assert statuses == [401] * 40


def guess(server: WebServer, number: int) -> int:
    return requests.get(server.url, auth=("ann", f"guess {number}"), timeout=20).status_code
