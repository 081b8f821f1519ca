"""Fetches the metrics page of one target within a deadline and a size, with a closed reason per failure."""

import re
import ssl
import zlib
from typing import Any
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError, NameResolutionError, ReadTimeoutError
from urllib3.exceptions import SSLError as PoolSslError

from kvcache_exporter import __version__
from kvcache_exporter.config import HttpSettings, TlsSettings
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.lookups import LOOKUPS, HungLookupError
from kvcache_exporter.scrape.credentials import Authorization, Stamp, tls_context, tls_stamps
from kvcache_exporter.scrape.transport import Attempt, Find, OnePool, open_pool

ACCEPT = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_CHUNK = 1 << 16
_MAX_GZIP_MEMBERS = 16
JSON = "application/json"
_NOT_METRICS = ("text/html", "application/json", "image/", "video/", "application/pdf", "application/zip")
_NO_TLS = TlsSettings()


class Fetcher:
    """Keeps one connection to one target; not thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        http: HttpSettings | None = None,
        timeout: float = 5.0,
        max_page_bytes: int = 1 << 24,
        look_up: Find = LOOKUPS.find,
        content: str = ACCEPT,
    ) -> None:
        """`look_up` resolves the host of `url`; no other address is ever connected to."""
        http = http or HttpSettings()
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._shown_url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._tls = http.tls or _NO_TLS
        self._timeout = timeout
        self._max_page_bytes = max_page_bytes
        self._look_up = look_up
        self._refused = tuple(kind for kind in _NOT_METRICS if kind != content)
        self._authorization = Authorization(http)
        self._attempt = Attempt()
        self._request = requests.Request("GET", url, _headers(timeout, content)).prepare()
        self._adapter: OnePool | None = None
        self._stamps: tuple[Stamp, ...] = ()

    def fetch(self) -> bytes:
        """The page, decompressed; raises ScrapeError."""
        self._attempt.start(self._timeout)
        adapter = self._prepared()
        try:
            response = self._send(adapter)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise self._failure(_causes(error)) or self._unreachable(_causes(error)) from None
        try:
            return self._page(response)
        except (HTTPError, OSError) as error:
            cut = self._error("truncated", "the connection ended before the page was complete")
            raise self._failure(_causes(error)) or cut from None
        finally:
            # The rest of a page that was not read to its end would be taken for the next response.
            response.raw.close()

    def close(self) -> None:
        """End what is under way, in whatever thread, and let go of the connection."""
        self._attempt.abort()
        self._drop_connection()

    def _drop_connection(self) -> None:
        if self._adapter is not None:
            self._adapter.close()
            self._adapter = None

    def _prepared(self) -> OnePool:
        try:
            adapter = self._connection()
            authorization = self._authorization.value()
        except ScrapeError as error:
            raise self._error(error.reason, str(error)) from None
        if authorization is not None:
            self._request.headers["Authorization"] = authorization
        return adapter

    def _send(self, adapter: OnePool) -> requests.Response:
        try:
            return adapter.send(self._request, stream=True, timeout=self._attempt.left())
        except requests.ConnectionError:
            # A server may close an idle connection at the moment it is reused.
            if self._attempt.connected:
                raise
            return adapter.send(self._request, stream=True, timeout=self._attempt.left())

    def _connection(self) -> OnePool:
        stamps = tls_stamps(self._tls) if self._secure else ()
        if self._adapter is None or stamps != self._stamps:
            context = tls_context(self._tls, stamps) if self._secure else None
            self._drop_connection()
            pool = open_pool(
                self._host,
                self._port,
                self._attempt,
                context,
                server_name=self._tls.server_name,
                look_up=self._look_up,
            )
            self._adapter, self._stamps = OnePool(pool), stamps
        return self._adapter

    def _page(self, response: requests.Response) -> bytes:
        self._check_head(response)
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip", "x-gzip"):
            raise self._error(
                "encoding", f'content encoding "{encoding[:40]}" was not asked for; send gzip or none'
            )
        framed = response.raw.length_remaining is not None or response.raw.chunked
        body = self._body(response.raw)
        if encoding.endswith("gzip"):
            return self._gunzip(body)
        if not framed and not body.endswith(b"\n"):
            raise self._error("truncated", "the page has no length and does not end in a newline")
        return body

    def _check_head(self, response: requests.Response) -> None:
        status, headers = response.status_code, response.headers
        if status in (301, 302, 303, 307, 308):
            location = _without_secrets(headers.get("Location", ""))
            raise self._error("redirect", f"redirected to {location}; configure the final address")
        if status in (401, 403):
            hint = "check bearer_token_file, basic_auth or the client certificate of this group"
            raise self._error("credentials", f"HTTP status {status}; {hint}")
        if status != 200:
            hint = "see the engine's own log" if status >= 500 else "check path and port"
            raise self._error("http_status", f"HTTP status {status}, expected 200; {hint}")
        content_type = headers.get("Content-Type", "").strip().lower()
        if content_type.startswith(self._refused):
            shown = content_type.partition(";")[0][:40]
            raise self._error("not_metrics", f"the page is {shown}, expected text/plain; check path and port")
        length = headers.get("Content-Length", "")
        if length.isdecimal() and len(length) < 20 and int(length) > self._max_page_bytes:
            raise self._too_large()

    def _body(self, raw: Any) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := raw.read(_CHUNK, decode_content=False):
            size += len(chunk)
            if size > self._max_page_bytes:
                raise self._too_large()
            chunks.append(chunk)
        return b"".join(chunks)

    def _gunzip(self, body: bytes) -> bytes:
        pages: list[bytes] = []
        room = self._max_page_bytes + 1
        for _ in range(_MAX_GZIP_MEMBERS):
            member = zlib.decompressobj(31)
            try:
                pages.append(member.decompress(body, room))
            except zlib.error:
                raise self._error("encoding", "the page is declared as gzip but is not") from None
            room -= len(pages[-1])
            if room <= 0:
                raise self._too_large()
            if not member.eof:
                raise self._error("truncated", "the gzip stream ends too early")
            body = member.unused_data
            if not body:
                return b"".join(pages)
        raise self._error("encoding", f"the page has more than {_MAX_GZIP_MEMBERS} gzip members; send one")

    def _too_large(self) -> ScrapeError:
        limit = f"larger than scrape.max_page_bytes ({self._max_page_bytes})"
        return self._error("too_large", f"the page is {limit}; raise it or check the address")

    def _error(self, reason: str, message: str) -> ScrapeError:
        return ScrapeError(reason, f"{self._shown_url}: {message}")

    def _failure(self, causes: list[BaseException]) -> ScrapeError | None:
        """The reason of a failure before or while the page is read; None for any other error."""
        if any(isinstance(cause, TimeoutError | requests.Timeout | ReadTimeoutError) for cause in causes):
            return self._error("timeout", f"no whole page within {self._timeout:g}s")
        if any(isinstance(cause, ssl.SSLError | PoolSslError) for cause in causes):
            return self._error("tls", _tls_message(causes))
        return None

    def _unreachable(self, causes: list[BaseException]) -> ScrapeError:
        hung = next((cause for cause in causes if isinstance(cause, HungLookupError)), None)
        if hung is not None:
            return self._error("lookup", str(hung))
        if any(isinstance(cause, NameResolutionError) for cause in causes):
            return self._error("lookup", "the name does not resolve; check it and the cluster's DNS")
        for cause in causes:
            if isinstance(cause, OSError) and cause.strerror:
                hint = "check that the engine runs and listens there"
                return self._error("connection", f"{cause.strerror.lower()}; {hint}")
        return self._error("connection", "the answer is not HTTP or ended at once; check port and scheme")


def _headers(timeout: float, content: str) -> dict[str, str]:
    return {
        "Accept": content,
        "Accept-Encoding": "gzip",
        "User-Agent": f"kvcache-exporter/{__version__}",
        "X-Prometheus-Scrape-Timeout-Seconds": f"{timeout:g}",
    }


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, outermost first."""
    causes: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting:
        cause = waiting.pop(0)
        if isinstance(cause, BaseException) and cause not in causes:
            causes.append(cause)
            waiting += [*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__]
    return causes


def _tls_message(causes: list[BaseException]) -> str:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {cause.verify_message}; check ca_file and server_name"
    reason = next((cause.reason for cause in causes if isinstance(cause, ssl.SSLError)), None)
    return f"TLS failed: {(reason or 'unknown').lower().replace('_', ' ')}; check scheme, port and tls"


def _without_secrets(location: str) -> str:
    shown = re.sub(r"[?#].*|(?<=//)[^/@]*@", "", location)[:200]
    return "".join(c for c in shown if c.isprintable()) or "nowhere"
