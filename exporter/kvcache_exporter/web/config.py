"""The web configuration file (TLS, passwords, headers) in the format of Prometheus' exporter-toolkit.

It is read again every few seconds, so that rotated certificates need no restart.
"""

import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from yaml.nodes import Node, ScalarNode

from kvcache_exporter.config.document import Document, found, join, quote
from kvcache_exporter.config.kinds import BOOLEAN
from kvcache_exporter.config.load import load_section
from kvcache_exporter.config.section import Problems, Section
from kvcache_exporter.errors import ConfigError, KVCacheError
from kvcache_exporter.web.auth import BasicAuth
from kvcache_exporter.web.tls import TlsServer

log = logging.getLogger(__name__)

_PRINTABLE = re.compile(r"[\x20-\x7e]*")
HEADERS = {
    "Content-Security-Policy": _PRINTABLE,
    "X-Frame-Options": re.compile("(deny|sameorigin)?", re.IGNORECASE),
    "X-Content-Type-Options": re.compile("(nosniff)?", re.IGNORECASE),
    "X-XSS-Protection": _PRINTABLE,
    "Strict-Transport-Security": _PRINTABLE,
}
"""Headers that may be set and their allowed values; an empty value sets nothing."""
MAX_COST = 18
READ_SECONDS = 5.0
"""Minimum time between two checks of the files."""

_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")


def _header_problem(name: str, value: str) -> str:
    if name not in HEADERS:
        return f"unknown header; expected one of {', '.join(HEADERS)}"
    if HEADERS[name].fullmatch(value):
        return ""
    if HEADERS[name] is _PRINTABLE:
        return "expected printable ASCII on one line"
    return f"found {quote(value)}, expected {HEADERS[name].pattern.strip('()?').replace('|', ' or ')}"


def _user_problem(name: str, hashed: str) -> str:
    """The message never contains the value, which may be a clear-text password."""
    match = _HASH.fullmatch(hashed)
    if not name or ":" in name:
        return "a user name must not be empty or contain a colon"
    if not match:
        return "expected a bcrypt hash ($2y$...); make one with `htpasswd -nBC 10 USER`"
    if not 4 <= int(match[1]) <= MAX_COST:
        return f"expected a bcrypt cost between 4 and {MAX_COST}; 10 is usual"
    return ""


@dataclass(frozen=True)
class Pairs:
    """A mapping of names to text; `problem` returns what is wrong with a pair, "" if it is valid."""

    problem: Callable[[str, str], str]

    def read(self, document: Document, node: Node, path: str) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for name, (_, value) in document.entries(node, path, "a mapping of names to text").items():
            if not isinstance(value, ScalarNode):
                document.report(value, join(path, name), f"found {found(value)}, expected text")
                continue
            pairs[name] = value.value
            if problem := self.problem(name, value.value):
                document.report(value, join(path, name), problem)
        return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer(Section):
    http2: Annotated[bool, BOOLEAN] = False
    headers: Annotated[dict[str, str], Pairs(_header_problem)] = field(default_factory=dict)

    def problems(self) -> Problems:
        if self.http2:
            yield "http2", "this server speaks HTTP/1.1; set it to false or remove it"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFile(Section):
    REFUSED: ClassVar[Mapping[str, str]] = {
        "rate_limit": "rate limiting is not supported; remove the section (connections are bounded anyway)"
    }

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: Annotated[dict[str, str], Pairs(_user_problem)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the file; the default is plain HTTP without authentication."""

    tls: ssl.SSLContext | None = None
    allowed_sans: tuple[str, ...] = ()
    users: BasicAuth | None = None
    headers: dict[str, str] = field(default_factory=dict)


class WebConfig:
    """The current settings; without a path, the defaults."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises ConfigError if the file is invalid."""
        self._path = path
        self._read_at = time.monotonic()
        self._failure = ""
        self._settings = load(path) if path else Settings()

    @property
    def scheme(self) -> str:
        return "https" if self._settings.tls else "http"

    def current(self) -> Settings:
        """Not thread-safe; an invalid new file is logged and the old settings stay in force."""
        now = time.monotonic()
        if self._path and now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self._read(self._path)
        return self._settings

    def _read(self, path: Path) -> None:
        try:
            self._settings, failure = load(path, self._settings), ""
        except (KVCacheError, OSError) as error:
            failure = str(error)
            if failure != self._failure:
                log.error("web configuration not reloaded, the old one stays: %s", failure)  # noqa: TRY400
        self._failure = failure


def load(path: Path, old: Settings = Settings()) -> Settings:
    """Raises ConfigError with every problem; keeps the verified passwords of `old`."""
    content = load_section(path, WebFile)
    _refuse_open(path, old, content)
    headers = {name: value for name, value in content.http_server_config.headers.items() if value}
    users = BasicAuth(content.basic_auth_users) if content.basic_auth_users else None
    if old.users and old.users.hashes == content.basic_auth_users:
        users = old.users
    tls = content.tls_server_config
    if tls is None:
        return Settings(None, (), users, headers)
    return Settings(tls.context(), tls.client_allowed_sans, users, headers)


def _refuse_open(path: Path, old: Settings, new: WebFile) -> None:
    """A half-written file looks like one without passwords: a reload never removes TLS or passwords."""
    gone = ["tls_server_config"] if old.tls and not new.tls_server_config else []
    gone += ["basic_auth_users"] if old.users and not new.basic_auth_users else []
    if gone:
        hint = "gone from the file; to serve without it, restart the exporter"
        raise ConfigError([f"{path}:1:1: {section}: {hint}" for section in gone])
