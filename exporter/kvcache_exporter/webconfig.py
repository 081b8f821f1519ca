"""The web configuration file (TLS, passwords, headers) in the format of Prometheus' exporter-toolkit.

It is read again when it or a certificate changes, so that rotated certificates need no restart.
"""

import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kvcache_exporter.errors import ConfigError, KVCacheError
from kvcache_exporter.webauth import HASH_PATTERN, MAX_COST, BasicAuth
from kvcache_exporter.webtls import TLSOptions, context_of, read_tls
from kvcache_exporter.yamlpos import Reader, join

log = logging.getLogger(__name__)

HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
"""Headers that may be set, with the values allowed (none = any)."""
RETRY_SECONDS = 5.0

_SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users")
_HINTS = {"rate_limit": "rate limiting is not supported; remove the section (connections are bounded anyway)"}
_PRINTABLE = re.compile(r"[\x20-\x7e]*")

Files = tuple[tuple[str, tuple[int, int, int]], ...]
"""Names and what moves when the file changes: time of modification, size, inode."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked content of the file; the default is plain HTTP for everybody."""

    tls: ssl.SSLContext | None = None
    allowed_sans: tuple[str, ...] = ()
    users: BasicAuth | None = None
    headers: dict[str, str] = field(default_factory=dict)
    files: Files = ()
    """Files that the settings come from, as they were just before they were read."""
    notes: tuple[str, ...] = ()
    """What the file asks for and this server does otherwise."""


class WebConfig:
    """The settings in force, re-read when a file's time stamp moves; without a path, the defaults."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises ConfigError if the file is wrong."""
        self._path = path
        self._lock = threading.Lock()
        self._retry_at = 0.0
        self._failure = ""
        self._failed: Files = ()
        self._settings = load(path) if path else Settings()
        self._log_notes()

    def current(self) -> Settings:
        """Costs one stat per file; a bad new file is logged and leaves the old settings in force."""
        if self._path and self._stale():
            with self._lock:
                # Whoever waited for the lock finds the work done.
                if self._stale():
                    self._refresh(self._path)
        return self._settings

    def _stale(self) -> bool:
        files = _stamped(name for name, _ in self._settings.files)
        return files != self._settings.files and (files != self._failed or time.monotonic() >= self._retry_at)

    def _refresh(self, path: Path) -> None:
        files = _stamped(name for name, _ in self._settings.files)
        try:
            settings = load(path)
            _refuse_open(path, self._settings, settings)
        except ConfigError as error:
            # Files that only the new configuration names may still come, so time alone is a reason too.
            self._failed, self._retry_at = files, time.monotonic() + RETRY_SECONDS
            if str(error) != self._failure:
                log.error("web configuration not reloaded, the old one stays: %s", error)  # noqa: TRY400
            self._failure = str(error)
        else:
            self._settings, self._failed, self._failure = settings, (), ""
            log.info("web configuration reloaded file=%s", path)
            self._log_notes()

    def _log_notes(self) -> None:
        for note in self._settings.notes:
            log.warning("web configuration: %s", note)


def load(path: Path) -> Settings:
    """Raises ConfigError with every problem as `file:line:column: path: message`."""
    files = _stamped([str(path)])
    reader = Reader(path)
    sections = reader.fields(reader.root(), "", _SECTIONS, _HINTS)
    notes: list[str] = []
    tls = sections.get("tls_server_config")
    options = read_tls(reader, tls, notes)
    headers = _headers(reader, sections.get("http_server_config"), notes)
    users = _users(reader, sections.get("basic_auth_users"))
    reader.raise_problems()
    auth = BasicAuth(users) if users else None
    if tls is None or options is None:
        return Settings(None, (), auth, headers, files, tuple(notes))
    files += _stamped(options.files)
    context = _context(reader, tls, options)
    return Settings(context, options.allowed_sans, auth, headers, files, tuple(notes))


def _context(reader: Reader, node: yaml.Node, options: TLSOptions) -> ssl.SSLContext:
    try:
        return context_of(options)
    except KVCacheError as error:
        reader.complain(node, "tls_server_config", str(error))
        raise ConfigError(reader.problems) from error


def _refuse_open(path: Path, old: Settings, new: Settings) -> None:
    """A file caught half-written looks like one without passwords: never open the door by itself."""
    problems = [
        f"{path}:1:1: {section}: gone from the file; to serve without it, restart the exporter"
        for section, before, after in (
            ("tls_server_config", old.tls, new.tls),
            ("basic_auth_users", old.users, new.users),
        )
        if before is not None and after is None
    ]
    if problems:
        raise ConfigError(problems)


def _headers(reader: Reader, node: yaml.Node | None, notes: list[str]) -> dict[str, str]:
    path = "http_server_config"
    found = reader.fields(node, path, ("http2", "headers"), {})
    if "http2" in found and reader.boolean(found["http2"], join(path, "http2"), default=False):
        notes.append("http_server_config.http2 has no effect: this server speaks HTTP/1.1")
    path = join(path, "headers")
    headers = reader.fields(found.get("headers"), path, HEADERS, {})
    values = {name: reader.text(value, join(path, name)) for name, value in headers.items()}
    for name, value in values.items():
        allowed = HEADERS[name]
        if value and allowed and value.lower() not in allowed:
            message = f"expected one of {', '.join(allowed)}, found `{value[:60]}`"
            reader.complain(headers[name], join(path, name), message)
        elif not _PRINTABLE.fullmatch(value):
            reader.complain(headers[name], join(path, name), "expected printable ASCII on one line")
    return {name: value for name, value in values.items() if value}


def _users(reader: Reader, node: yaml.Node | None) -> dict[str, str]:
    path = "basic_auth_users"
    users: dict[str, str] = {}
    for name, entry in reader.entries(node, path).items():
        users[name] = reader.text(entry.value, join(path, name))
        if problem := _user_problem(name, users[name]):
            reader.complain(entry.value, join(path, name), problem)
    return users


def _user_problem(name: str, hashed: str) -> str:
    """Empty if all is well; never quotes the value, which may be a password in clear text."""
    match = HASH_PATTERN.fullmatch(hashed)
    if not name or ":" in name:
        return "a user name must not be empty or contain a colon"
    if not match:
        return "expected a bcrypt hash ($2y$...); make one with `htpasswd -nBC 10 USER`"
    if not 4 <= int(match[1]) <= MAX_COST:
        return f"expected a bcrypt cost between 4 and {MAX_COST}; 10 is usual"
    return ""


def _stamped(names: Iterable[str]) -> Files:
    return tuple((name, _stamp(name)) for name in names)


def _stamp(name: str) -> tuple[int, int, int]:
    try:
        status = os.stat(name)  # noqa: PTH116  on the path of every request, and Path is slower
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)
