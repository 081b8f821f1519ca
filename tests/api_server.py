"""A real HTTP server on 127.0.0.1 for tests that publish: records requests, can be told to fail."""

import json
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def parts(self) -> list[str]:
        """The path's decoded segments."""
        return [unquote(part) for part in self.path.strip("/").split("/")]


class Answer(NamedTuple):
    status: int
    body: Any = ""
    headers: dict[str, str] = {}  # noqa: RUF012 -- nothing changes it
    hang_up: bool = False

    @property
    def content(self) -> tuple[str, bytes]:
        if isinstance(self.body, str):
            return "text/plain; charset=utf-8", self.body.encode()
        return "application/json; charset=UTF-8", json.dumps(self.body).encode()


class ApiServer:
    """Answers by `handle`, but first what `fail` was given."""

    def __init__(self, handle: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        self.next_answers: deque[Answer] = deque()
        self.for_writes = False
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = urlsplit(self.path)
                headers = dict(self.headers.items())
                request = Request(self.command, url.path, parse_qs(url.query), headers, body)
                api.requests.append(request)
                forced = api.next_answers and (not api.for_writes or self.command != "GET")
                answer = api.next_answers.popleft() if forced else handle(request)
                if answer.hang_up:
                    self.close_connection = True
                    return
                kind, content = answer.content
                self.send_response(answer.status)
                for name, value in {"Content-Type": kind, **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_PUT = _any  # noqa: N815 -- the base's names

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.method != "GET"]

    def fail(self, *answers: Answer, writes: bool = False) -> None:
        self.next_answers.extend(answers)
        self.for_writes = writes

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
