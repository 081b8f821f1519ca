"""Secrets and certificates for targets, read from files and again whenever a file changes."""

import base64
import functools
import ssl
from pathlib import Path

from kvcache_exporter.config import HttpSettings, TlsSettings
from kvcache_exporter.errors import ScrapeError

_MAX_SECRET_BYTES = 1 << 16
Stamp = tuple[int, int, int]


def stamp(file: str, reason: str = "credentials") -> Stamp:
    """A value that changes with the file; raises ScrapeError with `reason` if there is no file."""
    try:
        status = Path(file).stat()
    except OSError as error:
        raise ScrapeError(reason, f"cannot read {file}: {error.strerror}") from None
    return status.st_mtime_ns, status.st_size, status.st_ino


class Authorization:
    """The `Authorization` header for the targets of a group."""

    def __init__(self, http: HttpSettings) -> None:
        self._user = http.basic_auth.username if http.basic_auth else None
        self._file = http.basic_auth.password_file if http.basic_auth else http.bearer_token_file
        self._stamp: Stamp | None = None
        self._value = ""

    def value(self) -> str | None:
        """None if the targets take no credentials."""
        if self._file is None:
            return None
        current = stamp(self._file)
        if current != self._stamp:
            secret = _read_secret(self._file)
            self._value = f"Bearer {secret}" if self._user is None else _basic(self._user, secret)
            self._stamp = current
        return self._value


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _read_secret(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            secret = opened.read(_MAX_SECRET_BYTES).decode("ascii").strip()
    except OSError as error:
        raise ScrapeError("credentials", f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScrapeError(
            "credentials", f"{file} is not ASCII text; write the secret in one line of ASCII"
        ) from None
    if not secret or not secret.isprintable():
        raise ScrapeError("credentials", f"{file} must hold the secret in exactly one line")
    return secret


def tls_stamps(tls: TlsSettings) -> tuple[Stamp, ...]:
    files = (tls.ca_file, tls.cert_file, tls.key_file)
    return tuple(stamp(file, "tls") for file in files if file is not None)


# Shared by all targets of a group: a context with the system's CAs takes over a megabyte.
@functools.lru_cache(maxsize=256)
def tls_context(tls: TlsSettings, _stamps: tuple[Stamp, ...]) -> ssl.SSLContext:
    """Created again when a file changes; raises ScrapeError if a file is not a certificate."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ValueError) as error:
        raise ScrapeError("tls", f"ca_file {tls.ca_file} cannot be used: {error}") from None
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        try:
            # A key with a passphrase must fail, not ask for it on the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
        except (OSError, ValueError) as error:
            raise ScrapeError(
                "tls", f"cert_file {tls.cert_file} or its key_file cannot be used: {error}"
            ) from None
    return context
