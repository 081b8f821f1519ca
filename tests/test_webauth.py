"""Basic authentication: who is let in, and that it is cheap for the scraper and equal for guessers."""

import base64
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import requests

from kvcache_exporter.webauth import CACHE_SIZE, BasicAuth
from kvcache_exporter.webconfig import WebConfig
from kvcache_exporter.webhttp import Request, Response, text
from kvcache_exporter.webserver import WebServer
from kvcache_exporter.webservice import Limits

ANN = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
PATHS = ["/", "/metrics", "/-/healthy", "/nope"]


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
def file(tmp_path: Path) -> Path:
    file = tmp_path / "web.yml"
    file.write_text(f"basic_auth_users:\n  ann: {ANN}\n")
    return file


@pytest.fixture
def server(file: Path) -> Iterator[WebServer]:
    with WebServer("127.0.0.1:0", echo, WebConfig(file).current) as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("credentials", [None, ("ann", "wrong"), ("bob", "open sesame"), ("ann", "")])
def test_no_path_answers_without_the_right_password(
    server: WebServer, path: str, credentials: tuple[str, str] | None
) -> None:
    answer = requests.get(server.url + path, auth=credentials, timeout=10)
    assert (answer.status_code, answer.text) == (401, "unauthorized\n")
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="kvcache-exporter"'


@pytest.mark.parametrize("path", PATHS)
def test_every_path_answers_with_the_right_password(server: WebServer, path: str) -> None:
    assert requests.get(server.url + path, auth=("ann", "open sesame"), timeout=10).text == f"{path}\n"


def test_one_scraper_costs_one_bcrypt(server: WebServer, hashed: list[bytes]) -> None:
    for _ in range(5):
        assert requests.get(server.url, auth=("ann", "open sesame"), timeout=10).status_code == 200
    assert hashed == [b"open sesame"]


def test_a_changed_password_is_asked_for_at_the_next_request(server: WebServer, file: Path) -> None:
    with requests.Session() as session:
        session.auth = ("ann", "open sesame")
        assert session.get(server.url, timeout=10).status_code == 200
        other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
        file.write_text(f"basic_auth_users:\n  ann: {other}\n# changed\n")
        assert session.get(server.url, timeout=10).status_code == 401
        session.auth = ("ann", "other")
        assert session.get(server.url, timeout=10).status_code == 200


def test_an_unknown_user_costs_the_same_bcrypt_as_a_wrong_password(hashed: list[bytes]) -> None:
    users = BasicAuth({"ann": ANN})
    for user in ("ann", "bob"):
        assert [users.known(header(user, "x")), users.check(header(user, "x"))] == [None, False]
        assert users.known(header(user, "x")) is False
    assert hashed == [b"x", b"x"]


def test_an_unknown_user_with_a_known_users_password_is_refused() -> None:
    users = BasicAuth({"ann": ANN})
    assert users.check(header("bob", "open sesame")) is False
    assert users.known(header("bob", "open sesame")) is False


def test_guesses_do_not_push_a_scraper_out_and_the_cache_is_bounded(hashed: list[bytes]) -> None:
    users = BasicAuth({"ann": ANN})
    right = header("ann", "open sesame")
    assert users.check(right)
    guesses = [header("ann", str(number)) for number in range(CACHE_SIZE + 5)]
    assert not any(users.check(guess) for guess in guesses)
    assert users.known(right) is True
    assert [users.known(guess) for guess in guesses].count(False) == CACHE_SIZE
    assert len(hashed) == 1 + len(guesses)


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


def test_guesses_cost_no_worker_and_a_known_scraper_passes_them(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While bcrypt is stuck, whoever is in the cache is served; guesses beyond the queue get 503."""
    limits = Limits(workers=2, password_checks=4)
    gate = threading.Event()
    original = bcrypt.checkpw

    def stuck(password: bytes, expected: bytes) -> bool:
        if password.startswith(b"guess"):
            gate.wait(20)
        return original(password, expected)

    monkeypatch.setattr(bcrypt, "checkpw", stuck)
    with WebServer("127.0.0.1:0", echo, WebConfig(file).current, limits) as server:
        assert requests.get(server.url, auth=("ann", "open sesame"), timeout=10).status_code == 200
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda number=number: statuses.append(guess(server, number)))
            for number in range(12)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        started = time.monotonic()
        assert requests.get(server.url, auth=("ann", "open sesame"), timeout=10).status_code == 200
        assert time.monotonic() - started < 0.5
        gate.set()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [401] * 5 + [503] * 7


def guess(server: WebServer, number: int) -> int:
    return requests.get(server.url, auth=("ann", f"guess {number}"), timeout=20).status_code
