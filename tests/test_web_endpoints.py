"""The HTTP endpoints, asked over real sockets."""

import gzip
import http.client
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import pytest
import requests

from kvcache_exporter.errors import ProbeError
from kvcache_exporter.web import Asset, Request, Response, WebServer, web_server
from kvcache_exporter.web.endpoints import OPENMETRICS_FORMAT, ROUTES, TEXT_FORMAT

NO_MODEL = "no such model; /api/v1/summary lists them under models\n"


@dataclass
class FixedPages:
    """Pages whose answers a test chooses."""

    reason: str | None = None
    is_ready: bool = True
    lines: int = 1
    reloads: int = 0
    seconds: float = 0.0
    failures: list[Exception] = field(default_factory=list)
    largest: int = 0
    exports: list[tuple[str, str, bytes, str]] = field(default_factory=list)

    def metrics(self, openmetrics: bool) -> bytes:
        time.sleep(self.seconds)
        if self.failures:
            raise self.failures.pop()
        return b'kvcache_usage_ratio{target="a"} 0.5\n' * self.lines + (b"# EOF\n" if openmetrics else b"")

    def ready(self) -> bool:
        return self.is_ready

    def reload(self) -> str | None:
        time.sleep(self.seconds)
        self.reloads += 1
        return self.reason

    def config_text(self) -> str:
        return "scrape: {interval: 15s}"

    def target_text(self, name: str) -> str | None:
        return "target llm/vllm-0: up" if name == "llm/vllm-0" else None

    def summary_json(self, model: str | None) -> bytes | None:
        return b'{"schema":1}' * self.lines if model in (None, "llama & co") else None

    def page_html(self, model: str | None) -> bytes | None:
        return b"<!doctype html><title>kvcache</title>" if model in (None, "llama & co") else None

    def probe(self, target: str, module: str, timeout: str, *, openmetrics: bool) -> bytes:
        raise ProbeError("forbidden", f"{target} is not allowed by module {module} {timeout}")

    def asset(self, path: str) -> Asset | None:
        return Asset("text/css; charset=utf-8", b"p {}\n" * self.lines) if path == "0abc/page.css" else None

    def max_export(self) -> int:
        return self.largest

    def export(self, signal: str, request: Request) -> Response | None:
        if not self.largest:
            return None
        self.exports.append((signal, request.headers["content-type"], request.body, request.body_problem))
        return Response(200, b"taken", {"Content-Type": "application/x-protobuf"})


@pytest.fixture
def pages() -> FixedPages:
    return FixedPages()


@pytest.fixture
def server(pages: FixedPages) -> Iterator[WebServer]:
    with web_server("127.0.0.1:0", pages) as running:
        yield running


def get(server: WebServer, path: str, **headers: str) -> requests.Response:
    return requests.get(server.url + path, headers=headers, timeout=10)


@pytest.mark.parametrize(
    ("path", "status", "kind", "body"),
    [
        ("/", 200, "text/html; charset=utf-8", "<!doctype html><title>kvcache</title>"),
        (
            "/?model=llama%20%26%20co",
            200,
            "text/html; charset=utf-8",
            "<!doctype html><title>kvcache</title>",
        ),
        ("/?model=nope", 404, "text/plain; charset=utf-8", NO_MODEL),
        ("/api/v1/summary", 200, "application/json", '{"schema":1}'),
        ("/api/v1/summary?model=llama+%26+co", 200, "application/json", '{"schema":1}'),
        ("/api/v1/summary?model=nope", 404, "text/plain; charset=utf-8", NO_MODEL),
        ("/assets/0abc/page.css", 200, "text/css; charset=utf-8", "p {}\n"),
        (
            "/assets/0abc/../page.py",
            404,
            "text/plain; charset=utf-8",
            "no such asset; load the page again\n",
        ),
        ("/-/healthy", 200, "text/plain; charset=utf-8", "healthy\n"),
        ("/-/ready", 200, "text/plain; charset=utf-8", "ready\n"),
        ("/config", 200, "text/plain; charset=utf-8", "scrape: {interval: 15s}\n"),
        ("/debug/target?name=llm/vllm-0", 200, "text/plain; charset=utf-8", "target llm/vllm-0: up\n"),
        ("/debug/target?name=llm%2Fvllm-0", 200, "text/plain; charset=utf-8", "target llm/vllm-0: up\n"),
        (
            "/debug/target?name=nope",
            404,
            "text/plain; charset=utf-8",
            "no such target; kvcache_target_up on /metrics has the names\n",
        ),
        (
            "/debug/target",
            400,
            "text/plain; charset=utf-8",
            "say which target: /debug/target?name=NAME\n",
        ),
        (
            "/probe?target=a%3A1&module=m",
            403,
            "text/plain; charset=utf-8",
            "a:1 is not allowed by module m \n",
        ),
        ("/metrics", 200, TEXT_FORMAT, 'kvcache_usage_ratio{target="a"} 0.5\n'),
    ],
)
def test_each_page_answers(server: WebServer, path: str, status: int, kind: str, body: str) -> None:
    answer = get(server, path)
    assert (answer.status_code, answer.headers["Content-Type"], answer.text) == (status, kind, body)


@pytest.mark.parametrize("path", sorted(path for path, route in ROUTES.items() if route.method == "GET"))
def test_head_answers_as_get_without_the_body(server: WebServer, pages: FixedPages, path: str) -> None:
    pages.lines = 100
    asked = f"{path}?name=llm/vllm-0"
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    answers = []
    for method in ("GET", "HEAD", "HEAD"):
        connection.request(method, asked, headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        headers = [pair for pair in response.getheaders() if pair[0] != "Date"]
        answers.append((response.status, headers))
        assert (method == "HEAD") == (response.read() == b"")
    assert answers[0] == answers[1] == answers[2]
    connection.close()


def test_security_headers_are_on_every_answer(server: WebServer) -> None:
    for path in ("/", "/metrics", "/nope", "/config", "/api/v1/summary"):
        headers = get(server, path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy


def test_html_runs_and_shows_only_what_the_exporter_serves(server: WebServer) -> None:
    directives = get(server, "/").headers["Content-Security-Policy"].split("; ")
    assert directives == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    assert "script-src" not in get(server, "/metrics").headers["Content-Security-Policy"]


def test_assets_may_be_kept_and_figures_may_not(server: WebServer) -> None:
    kept = get(server, "/assets/0abc/page.css").headers
    assert (kept["Cache-Control"], kept["Vary"]) == ("max-age=31536000, immutable", "Accept-Encoding")
    assert get(server, "/assets/0abc/page.js").headers["Cache-Control"] == "no-store"
    assert get(server, "/api/v1/summary").headers["Cache-Control"] == "no-store"


def test_summary_and_assets_are_compressed_for_those_who_take_it(
    server: WebServer, pages: FixedPages
) -> None:
    pages.lines = 500
    for path in ("/api/v1/summary", "/assets/0abc/page.css"):
        packed, plain = (get(server, path, **{"Accept-Encoding": e}) for e in ("gzip", "identity"))
        assert (packed.headers["Content-Encoding"], plain.headers.get("Content-Encoding")) == ("gzip", None)
        assert packed.content == plain.content
        assert int(packed.headers["Content-Length"]) < len(plain.content) / 10


@pytest.mark.parametrize("path", ["/nope", "/metrics/", "/../etc/passwd", "//", "/%2e%2e/etc/passwd"])
def test_anything_else_is_404_and_lists_the_pages(server: WebServer, path: str) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    listed = response.read().decode()
    assert response.status == 404
    assert [line.split()[1] for line in listed.splitlines()[1:]] == list(ROUTES)
    connection.close()


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/-/reload", "POST"),
        ("HEAD", "/-/reload", "POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("BREW", "/config", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_405_and_says_which_are_right(
    server: WebServer, pages: FixedPages, method: str, path: str, allow: str
) -> None:
    answer = requests.request(method, server.url + path, timeout=10)
    assert (answer.status_code, answer.headers["Allow"], pages.reloads) == (405, allow, 0)


def test_ready_is_503_until_ready(server: WebServer, pages: FixedPages) -> None:
    pages.is_ready = False
    assert (get(server, "/-/ready").status_code, get(server, "/-/healthy").status_code) == (503, 200)


def test_reload_says_why_it_failed(server: WebServer, pages: FixedPages) -> None:
    assert requests.post(server.url + "/-/reload", timeout=10).text == "reloaded\n"
    pages.reason = "kv.yml:3:1: scrape: unknown key"
    answer = requests.post(server.url + "/-/reload", data=b"ignored", timeout=10)
    assert (answer.status_code, pages.reloads) == (500, 2)
    assert "kv.yml:3:1: scrape: unknown key" in answer.text


def test_a_page_of_another_site_cannot_reload(server: WebServer, pages: FixedPages) -> None:
    for origin in ("https://evil.example", "null"):
        answer = requests.post(server.url + "/-/reload", headers={"Origin": origin}, timeout=10)
        assert answer.status_code == 403
    own = requests.post(server.url + "/-/reload", headers={"Origin": server.url}, timeout=10)
    assert (own.status_code, pages.reloads) == (200, 1)


def test_16_scrapes_and_a_reload_at_work_do_not_hold_up_one_another(
    server: WebServer, pages: FixedPages
) -> None:
    pages.seconds = 2.0
    started = time.monotonic()
    with ThreadPoolExecutor(17) as clients:
        scrapes = [clients.submit(get, server, "/metrics") for _ in range(16)]
        reload = clients.submit(requests.post, server.url + "/-/reload", timeout=10)
        assert get(server, "/-/healthy").status_code == 200
        assert not any(job.done() for job in scrapes)
        assert {job.result().status_code for job in [*scrapes, reload]} == {200}
    assert time.monotonic() - started < 10.0


def test_no_header_tells_what_serves(server: WebServer) -> None:
    headers = get(server, "/metrics").headers
    assert "Server" not in headers
    assert parsedate_to_datetime(headers["Date"])


def test_a_failing_page_is_500_and_logged_and_the_next_request_works(
    server: WebServer, pages: FixedPages, caplog: pytest.LogCaptureFixture
) -> None:
    pages.failures.append(RuntimeError("boom in page"))
    with requests.Session() as session:
        first = session.get(server.url + "/metrics", timeout=10)
        second = session.get(server.url + "/metrics", timeout=10)
    assert (first.status_code, second.status_code) == (500, 200)
    assert "boom" not in first.text
    assert "RuntimeError: boom in page" in caplog.text


def test_requests_are_logged_at_debug_level_only(server: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "kvcache_exporter"):
        get(server, "/debug/target?name=secret")
    records = [record for record in caplog.records if "path=/debug/target" in record.getMessage()]
    assert [record.levelno for record in records] == [logging.DEBUG]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("openmetrics", [True, False])
@pytest.mark.parametrize("lines", [1, 5000])
def test_metrics_come_in_the_negotiated_format_and_gzip_changes_no_byte(
    server: WebServer, pages: FixedPages, openmetrics: bool, lines: int
) -> None:
    pages.lines = lines
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    accept = "application/openmetrics-text;version=1.0.0" if openmetrics else "text/plain"
    for encoding in ("gzip", "identity"):
        connection.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": encoding})
        response = connection.getresponse()
        body = response.read()
        packed = response.getheader("Content-Encoding") == "gzip"
        assert packed == (encoding == "gzip" and lines > 1)
        assert (gzip.decompress(body) if packed else body) == pages.metrics(openmetrics)
        assert response.getheader("Content-Type") == (OPENMETRICS_FORMAT if openmetrics else TEXT_FORMAT)
        assert response.getheader("Vary") == "Accept, Accept-Encoding"
    connection.close()


def post(server: WebServer, path: str, body: bytes | Iterator[bytes]) -> requests.Response:
    return requests.post(
        server.url + path, data=body, headers={"Content-Type": "application/json"}, timeout=10
    )


def test_exports_are_read_whole_whether_their_length_is_told_or_not(
    server: WebServer, pages: FixedPages
) -> None:
    pages.largest = 300_000
    body = b"x" * 300_000
    assert post(server, "/v1/traces", body).content == b"taken"
    assert post(server, "/v1/logs", iter([body[:1000], body[1000:]])).content == b"taken"
    kind = "application/json"
    assert pages.exports == [("traces", kind, body, ""), ("logs", kind, body, "")]


def test_an_export_that_is_too_large_is_not_read_on(server: WebServer, pages: FixedPages) -> None:
    pages.largest = 1000
    post(server, "/v1/traces", b"x" * 1001)
    post(server, "/v1/traces", iter([b"x" * 600] * 3))
    assert [(body, problem) for _, _, body, problem in pages.exports] == [(b"", "too_large")] * 2


def test_without_a_receiver_the_answer_says_what_to_configure(server: WebServer, pages: FixedPages) -> None:
    answer = post(server, "/v1/traces", b"{}")
    assert answer.status_code == 404
    assert "add a source with otlp to requests" in answer.text
    assert requests.get(server.url + "/v1/traces", timeout=10).headers["Allow"] == "POST"
    assert pages.exports == []
