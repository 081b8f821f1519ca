"""The engine's version from its web server: requested once, and again after each restart."""

import re
import time
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kvcache_exporter.config import HttpSettings
from kvcache_exporter.engines.base import Engine
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.scrape.fetch import JSON, Fetcher

_SECONDS = 1.0
_MAX_BYTES = 1 << 16
_MOST_TRIES = 3
_PAUSE_SECONDS = 60.0
_NO_ANSWER = ("timeout", "connection", "lookup", "truncated")
_VERSION = re.compile(r"v?\d[0-9A-Za-z.+_-]{0,63}")


class _Answer(msgspec.Struct):
    version: str


class EngineVersion:
    """The version of one target, "" if it is not known; a failed request is not a failure of the target.

    `url` is the metrics page; `http` its credentials and TLS settings.
    """

    def __init__(self, url: str, http: HttpSettings | None = None) -> None:
        self._url, self._http = url, http
        self._restarts: int | None = None
        self._version = ""
        self._tries = 0
        self._next = 0.0

    def of(self, engine: Engine, restarts: int) -> str:
        """The version; `restarts` is the number of restarts so far. Blocks for at most a second."""
        if restarts != self._restarts:
            self._restarts, self._version, self._tries, self._next = restarts, "", 0, 0.0
        if not self._version and self._tries < _MOST_TRIES and time.monotonic() >= self._next:
            self._tries += 1
            self._next = time.monotonic() + _PAUSE_SECONDS
            self._version = self._asked(engine)
        return self._version

    def _asked(self, engine: Engine) -> str:
        url = version_url(self._url, engine)
        if url is None:
            self._tries = _MOST_TRIES
            return ""
        fetcher = Fetcher(url, http=self._http, timeout=_SECONDS, max_page_bytes=_MAX_BYTES, content=JSON)
        try:
            return _read(fetcher.fetch())
        except ScrapeError as error:
            if error.reason not in _NO_ANSWER:
                self._tries = _MOST_TRIES
            return ""
        finally:
            fetcher.close()


def version_url(url: str, engine: Engine) -> str | None:
    """The URL of the version for a metrics page at `url`; None if there is none or the path is unusual."""
    parts = urlsplit(url)
    if not engine.version_path or not parts.path.endswith(engine.metrics_path):
        return None
    path = parts.path.removesuffix(engine.metrics_path) + engine.version_path
    return urlunsplit(parts._replace(path=path, query="", fragment=""))


def _read(body: bytes) -> str:
    """The version in an answer; raises ScrapeError, without quoting the answer, if there is none."""
    try:
        version = msgspec.json.decode(body, type=_Answer).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        version = ""
    if not _VERSION.fullmatch(version):
        raise ScrapeError("not_metrics", "the answer holds no version")
    return version
