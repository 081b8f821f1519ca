"""Addresses of targets and URLs of servers, checked the same way wherever they are written."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

EXPECTED = "an address such as 10.0.0.1:8000, [::1]:8000 or http://10.0.0.1:8000/metrics"

_HOST = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[\w.-]*\w)?\.?)"
_BARE_HOST = re.compile(_HOST, re.ASCII)
_HOST_PORT = re.compile(_HOST + r":(\d{1,5})", re.ASCII)
_URL_PATH = re.compile(r"/[^\s?#]*")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one target; an empty scheme or path means that of the target's group."""

    host: str
    """A host name or an IP address, IPv6 in brackets."""
    port: int
    scheme: str = ""
    path: str = ""

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"

    def url(self, scheme: str, path: str) -> str:
        return f"{self.scheme or scheme}://{self.name}{self.path or path}"


def parse_address(text: str) -> Address:
    """Raises ValueError with a message that says what is wrong and never repeats a password."""
    if "@" in text:
        raise ValueError("found credentials in an address, expected them in basic_auth or bearer_token_file")
    if "://" in text:
        return _parse_url(text)
    return _host_port(text, text)


def split_server_url(text: str) -> SplitResult:
    """The parts of an http(s) URL, its port checked.

    Raises ValueError with a message that says what is wrong and never repeats a password.
    """
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        shown = text.rpartition("@")[2][:80]
        raise ValueError(f'found "{shown}", expected http://HOST or https://HOST, with or without a port')
    return parts


def is_url_path(text: str) -> bool:
    return text.isprintable() and _URL_PATH.fullmatch(text) is not None


def _parse_url(text: str) -> Address:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(f'found "{text[:80]}", expected {EXPECTED}') from None
    if parts.query or parts.fragment:
        raise ValueError(f"found a URL with a query or a fragment, expected {EXPECTED}")
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f'found the scheme "{parts.scheme}", expected http or https')
    netloc = parts.netloc
    if _BARE_HOST.fullmatch(netloc):
        netloc = f"{netloc}:{_DEFAULT_PORTS[parts.scheme]}"
    address = _host_port(netloc, text)
    return Address(address.host, address.port, parts.scheme, parts.path.rstrip("/") and parts.path)


def _host_port(netloc: str, text: str) -> Address:
    match = _HOST_PORT.fullmatch(netloc)
    if match is None or not _is_host(match[1]):
        raise ValueError(f'found "{text[:80]}", expected {EXPECTED}')
    port = int(match[2])
    if not 1 <= port <= 65535:
        raise ValueError(f"found the port {port}, expected one from 1 to 65535")
    return Address(match[1], port)


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return True
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True
