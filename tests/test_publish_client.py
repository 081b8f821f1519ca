"""The client of publishing: what it retries, for how long, and what its errors say."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from api_server import Answer, ApiServer, Request
from kvcache_exporter.errors import UsageError
from kvcache_exporter.publish.client import ApiError, Client, PublishError

TOKEN = "glsa_secret"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with closing(ApiServer(lambda _: Answer(200, {"ok": True}))) as made:
        yield made


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(server: ApiServer, pauses: list[float]) -> Client:
    return Client(server.url, TOKEN, sleep=pauses.append)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again_with_growing_pauses(
    status: int, server: ApiServer, client: Client, pauses: list[float]
) -> None:
    server.fail(*[Answer(status)] * 4)
    assert client.json(client.get("/x")) == {"ok": True}
    assert pauses == [0.5, 1.0, 2.0, 4.0]


def test_trying_ends(server: ApiServer, client: Client) -> None:
    server.fail(*[Answer(503, "starting up")] * 9)
    with pytest.raises(
        ApiError, match=r"503 Service Unavailable: the server failed \(the server says: starting up\)"
    ):
        client.get("/x")
    assert len(server.requests) == 5


def test_a_dropped_connection_is_tried_again(server: ApiServer, client: Client, pauses: list[float]) -> None:
    server.fail(Answer(200, hang_up=True), Answer(200, hang_up=True))
    assert client.get("/x").ok
    assert pauses == [0.5, 1.0]


def test_nobody_there_is_said_plainly(pauses: list[float]) -> None:
    with closing(ApiServer(lambda _: Answer(200))) as gone:
        url = gone.url
    with pytest.raises(PublishError, match="cannot connect: is the address right and the server up"):
        Client(url, sleep=pauses.append).get("/x")
    assert len(pauses) == 4


@pytest.mark.parametrize(
    ("asked", "pause"), [("3", 3.0), ("0", 0.0), ("86400", 30.0), ("soon", 0.5), ("-1", 0.5)]
)
def test_retry_after_is_honoured_within_bounds(
    asked: str, pause: float, server: ApiServer, client: Client, pauses: list[float]
) -> None:
    server.fail(Answer(429, headers={"Retry-After": asked}))
    client.get("/x")
    assert pauses == [pause]


def test_retry_after_may_be_a_date(server: ApiServer, client: Client, pauses: list[float]) -> None:
    at = datetime.now(UTC) + timedelta(seconds=10)
    server.fail(Answer(429, headers={"Retry-After": format_datetime(at, usegmt=True)}))
    client.get("/x")
    assert 7 < pauses[0] <= 10


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "refused the content"),
        (401, "--token-file or set KVCACHE_TOKEN"),
        (403, "lacks permission"),
        (404, "check --url"),
        (412, "changed by someone else"),
        (422, "refused the content"),
    ],
)
def test_what_cannot_pass_is_not_tried_again_and_says_what_to_do(
    status: int, advice: str, server: ApiServer, client: Client, pauses: list[float]
) -> None:
    server.fail(Answer(status, {"message": "the server's words"}))
    with pytest.raises(ApiError, match=advice) as caught:
        client.post("/x", json={})
    assert f"POST {server.url}/x: {status} " in str(caught.value)
    assert "the server's words" in str(caught.value)
    assert pauses == []


def test_the_token_is_sent_and_never_shown(
    server: ApiServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an echoing server nor a ~/.netrc changes that."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    server.fail(Answer(401, {"message": f"invalid token {TOKEN}"}))
    with pytest.raises(ApiError) as caught:
        client.get("/x")
    assert server.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in str(caught.value)
    assert "invalid token <token>" in str(caught.value)
    Client(server.url, TOKEN, user="me").get("/x")
    assert server.requests[1].headers["Authorization"].startswith("Basic ")
    Client(server.url).get("/x")
    assert "Authorization" not in server.requests[2].headers


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("grafana:3000", "expected http://HOST"),
        ("http://", "expected http://HOST"),
        ("http://grafana:port", "expected http://HOST"),
        ("http://me:secret@grafana:port", "expected http://HOST"),
        ("http://me:secret@grafana", "found credentials for grafana; give them by --token-file"),
    ],
)
def test_a_bad_url_is_refused_without_showing_its_password(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_redirects_are_not_followed_with_the_token(server: ApiServer, client: Client) -> None:
    server.fail(Answer(302, headers={"Location": "http://elsewhere/login"}))
    with pytest.raises(PublishError, match="redirects to http://elsewhere/login: give the final address"):
        client.post("/x")


def test_a_page_that_is_no_json_is_said_to_be_none() -> None:
    def page(_: Request) -> Answer:
        return Answer(200, "<html>", {"Content-Type": "text/html"})

    with closing(ApiServer(page)) as server:
        client = Client(server.url)
        answer = client.get("/x")
        with pytest.raises(PublishError, match="expected JSON, got text/html"):
            client.json(answer)
