"""The HTTP endpoints. To add one, write a method and list it in `ROUTES`."""

import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from kvcache_exporter.errors import ProbeError
from kvcache_exporter.model import Signal
from kvcache_exporter.web.negotiation import accepts_gzip, prefers_openmetrics

TEXT = "text/plain; charset=utf-8"
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_FORMAT = "application/openmetrics-text; version=1.0.0; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
# Nothing from other origins, and no inline script or style.
HTML_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# The path contains a hash of the content, so changed content has another path.
ASSET_CACHING = "max-age=31536000, immutable"
ASSETS = "/assets/"
# On a page of 1 MB: 3.6 ms and 121 kB; level 6 takes 9.9 ms for 99 kB, level 9 20 ms for 95 kB.
GZIP_LEVEL = 1
GZIP_MIN_BYTES = 1024
HEALTHY, READY = "/-/healthy", "/-/ready"
_PROBE_STATUS = {"not_configured": 404, "bad_request": 400, "forbidden": 403, "busy": 503}
TRACES, LOGS = "/v1/traces", "/v1/logs"
PROBES = (HEALTHY, READY)
"""Paths that only reveal whether the exporter works."""


class Pages(Protocol):
    """The content of the endpoints; called from several threads at once."""

    def metrics(self, openmetrics: bool) -> bytes: ...
    def ready(self) -> bool: ...
    def reload(self) -> str | None:
        """None if the new configuration is in force, else the reason why not."""

    def config_text(self) -> str:
        """The configuration in force, secrets masked."""

    def target_text(self, name: str) -> str | None:
        """Diagnostics of a target; None if there is no such target."""

    def summary_json(self, model: str | None) -> bytes | None:
        """The summary, with the history of a model or of the fleet; None if there is no such model."""

    def page_html(self, model: str | None) -> bytes | None:
        """The built-in page with the same content."""

    def probe(self, target: str, module: str, timeout: str, *, openmetrics: bool) -> bytes:
        """The page of a target that the client names; raises ProbeError if it may not be scraped.

        `timeout` is the value of Prometheus's timeout header, "" without one.
        """

    def asset(self, path: str) -> "Asset | None":
        """A file below `/assets/`; None if there is no such file."""

    def max_export(self) -> int:
        """Maximum size of an OTLP export in bytes; 0 if there is no receiver."""

    def export(self, signal: Signal, request: "Request") -> "Response | None":
        """The response to an OTLP export; None if there is no receiver."""


class Request(NamedTuple):
    """A request; header names are lower case, repeated headers are joined with a comma."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes = b""
    """Empty for paths that take none."""
    body_problem: str = ""
    """Why the body was not read: `too_large`, `slow` or `busy`."""

    def argument(self, name: str) -> str:
        """The first value of a query parameter, "" if there is none."""
        try:
            return parse_qs(self.query, max_num_fields=20).get(name, [""])[0]
        except ValueError:
            return ""


class Asset(NamedTuple):
    """A file of the built-in page."""

    kind: str
    """Its content type."""
    body: bytes


class Response(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


def text(status: int, message: str, **headers: str) -> Response:
    return Response(status, f"{message}\n".encode(), {"Content-Type": TEXT, **headers})


class Route(NamedTuple):
    """One path; GET routes answer HEAD as well."""

    method: str
    path: str
    purpose: str
    respond: Callable[["Endpoints", Request], Response]


class Endpoints:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def respond(self, request: Request) -> Response:
        route = ROUTES.get(ASSETS if request.path.startswith(ASSETS) else request.path)
        if route is None:
            return text(404, f"no such page; there are:\n{_overview()}")
        allowed = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        if request.method not in allowed:
            return text(405, f"{request.path} takes {' and '.join(allowed)}", Allow=", ".join(allowed))
        return route.respond(self, request)

    def metrics(self, request: Request) -> Response:
        openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
        return _exposition(request, self._pages.metrics(openmetrics), openmetrics=openmetrics)

    def probe(self, request: Request) -> Response:
        openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
        timeout = request.headers.get("x-prometheus-scrape-timeout-seconds", "")
        target, module = request.argument("target"), request.argument("module")
        try:
            body = self._pages.probe(target, module, timeout, openmetrics=openmetrics)
        except ProbeError as error:
            return text(_PROBE_STATUS[error.reason], str(error))
        return _exposition(request, body, openmetrics=openmetrics)

    def page(self, request: Request) -> Response:
        body = self._pages.page_html(request.argument("model") or None)
        headers = {
            "Content-Type": HTML,
            "Content-Security-Policy": HTML_POLICY,
            "Referrer-Policy": "no-referrer",
        }
        return _no_such_model() if body is None else _packed(request, body, headers)

    def summary(self, request: Request) -> Response:
        body = self._pages.summary_json(request.argument("model") or None)
        return _no_such_model() if body is None else _packed(request, body, {"Content-Type": JSON})

    def asset(self, request: Request) -> Response:
        found = self._pages.asset(request.path.removeprefix(ASSETS))
        if found is None:
            return text(404, "no such asset; load the page again")
        return _packed(request, found.body, {"Content-Type": found.kind, "Cache-Control": ASSET_CACHING})

    def healthy(self, _: Request) -> Response:
        return text(200, "healthy")

    def ready(self, _: Request) -> Response:
        return text(200, "ready") if self._pages.ready() else text(503, "not ready yet")

    def reload(self, request: Request) -> Response:
        if _is_cross_site(request):
            return text(403, "a page of another site may not reload the exporter")
        reason = self._pages.reload()
        if reason is None:
            return text(200, "reloaded")
        return text(500, f"not reloaded, the old configuration stays in force:\n{reason}")

    def max_body(self, request: Request) -> int:
        """Maximum size of the body; 0 for paths that take none."""
        return self._pages.max_export() if request.path in (TRACES, LOGS) and request.method == "POST" else 0

    def traces(self, request: Request) -> Response:
        return self._pages.export("traces", request) or _no_receiver()

    def logs(self, request: Request) -> Response:
        return self._pages.export("logs", request) or _no_receiver()

    def config(self, _: Request) -> Response:
        return text(200, self._pages.config_text().rstrip("\n"))

    def target(self, request: Request) -> Response:
        name = request.argument("name")
        if not name:
            return text(400, "say which target: /debug/target?name=NAME")
        found = self._pages.target_text(name)
        if found is None:
            return text(404, "no such target; kvcache_target_up on /metrics has the names")
        return text(200, found.rstrip("\n"))


_ROUTES = (
    Route("GET", "/metrics", "metrics as text or OpenMetrics", Endpoints.metrics),
    Route("GET", "/", "the built-in page; ?model=NAME: of one model", Endpoints.page),
    Route("GET", "/api/v1/summary", "what the page shows, as JSON; ?model=NAME", Endpoints.summary),
    Route("GET", "/probe", "?target=HOST:PORT&module=NAME: one target, if it may be asked", Endpoints.probe),
    Route("GET", HEALTHY, "200 while the process answers", Endpoints.healthy),
    Route("GET", READY, "200 once targets were scraped, else 503", Endpoints.ready),
    Route("POST", "/-/reload", "loads the configuration again", Endpoints.reload),
    Route("POST", TRACES, "takes spans in OTLP, where that is configured", Endpoints.traces),
    Route("POST", LOGS, "takes log records in OTLP, where that is configured", Endpoints.logs),
    Route("GET", "/config", "the configuration in force, secrets masked", Endpoints.config),
    Route("GET", "/debug/target", "?name=NAME: what is known about a target", Endpoints.target),
    Route("GET", ASSETS, "scripts and styles of the built-in page", Endpoints.asset),
)
ROUTES = {route.path: route for route in _ROUTES}


def _overview() -> str:
    return "\n".join(f"{route.method:4} {route.path:15} {route.purpose}" for route in _ROUTES)


def _exposition(request: Request, body: bytes, *, openmetrics: bool) -> Response:
    headers = {"Content-Type": OPENMETRICS_FORMAT if openmetrics else TEXT_FORMAT}
    return _packed(request, body, headers, vary="Accept, Accept-Encoding")


def _packed(
    request: Request, body: bytes, headers: dict[str, str], vary: str = "Accept-Encoding"
) -> Response:
    """The response, compressed if the client accepts that and it is worthwhile."""
    headers = {**headers, "Vary": vary}
    if len(body) >= GZIP_MIN_BYTES and accepts_gzip(request.headers.get("accept-encoding", "")):
        body = zlib.compress(body, GZIP_LEVEL, wbits=31)
        headers["Content-Encoding"] = "gzip"
    return Response(200, body, headers)


def _no_such_model() -> Response:
    return text(404, "no such model; /api/v1/summary lists them under models")


def _no_receiver() -> Response:
    return text(404, "no OTLP is taken here; add a source with otlp to requests, as docs/otlp.md says")


def _is_cross_site(request: Request) -> bool:
    """Whether a browser sent the request from another site; tools send no such header."""
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")
