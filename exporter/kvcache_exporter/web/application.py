"""The ASGI application: authenticates a request, answers it in a thread, and adds the headers."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, HTTPScope

from kvcache_exporter.web.auth import BasicAuth
from kvcache_exporter.web.bodies import Bodies
from kvcache_exporter.web.config import Settings
from kvcache_exporter.web.endpoints import Request, Response, text

log = logging.getLogger(__name__)

WORKERS = 32
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Application:
    def __init__(
        self,
        respond: Callable[[Request], Response],
        settings: Callable[[], Settings],
        open_paths: Collection[str] = (),
        max_body: Callable[[Request], int] = lambda _: 0,
    ) -> None:
        """`open_paths` need no password; `max_body` returns the maximum size of a request's body."""
        self._respond, self._max_body, self._bodies = respond, max_body, Bodies()
        self._settings = settings
        self._open_paths = frozenset(open_paths)
        self._workers = ThreadPoolExecutor(WORKERS, "web-worker")
        # One thread, because bcrypt is slow by design: password guesses may use one core, but no worker.
        self._passwords = ThreadPoolExecutor(1, "web-password")

    async def __call__(self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        started = time.perf_counter()
        settings = self._settings()
        request = _request(scope)
        response = await self._answer(request, settings, receive)
        seconds = time.perf_counter() - started
        found = (request.method, request.path, response.status, len(response.body), seconds)
        log.debug("request method=%s path=%.200s status=%d bytes=%d seconds=%.4f", *found)
        headers = {**_HEADERS, **response.headers, **settings.headers}
        headers["Content-Length"] = str(len(response.body))
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": raw})
        await send({"type": "http.response.body", "body": response.body, "more_body": False})

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._passwords.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, request: Request, settings: Settings, receive: ASGIReceiveCallable) -> Response:
        loop = asyncio.get_running_loop()
        try:
            if settings.users and request.path not in self._open_paths:
                refusal = await self._refusal(request, settings.users)
                if refusal:
                    return refusal
            wanted = self._max_body(request)
            if not wanted:
                return await loop.run_in_executor(self._workers, self._respond, request)
            async with self._bodies.read(request, receive, wanted) as whole:
                return await loop.run_in_executor(self._workers, self._respond, whole)
        except Exception:
            log.exception("request failed method=%s path=%.200s", request.method, request.path)
            return text(500, "internal error; the exporter's log has the details")

    async def _refusal(self, request: Request, users: BasicAuth) -> Response | None:
        header = request.headers.get("authorization", "")
        verdict = users.known(header)
        if verdict is None:
            loop = asyncio.get_running_loop()
            verdict = await loop.run_in_executor(self._passwords, users.check, header)
        if verdict:
            return None
        return text(401, "unauthorized", **{"WWW-Authenticate": 'Basic realm="kvcache-exporter"'})


def _request(scope: HTTPScope) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    # The raw path: an escaped line break must not become one in a log.
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    return Request(scope["method"], path, query, headers)
