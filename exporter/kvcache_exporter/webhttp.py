"""Requests and responses of HTTP/1.1 as bytes: parsed strictly, written once."""

import re
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs

from kvcache_exporter.errors import KVCacheError

MAX_HEAD_BYTES = 16 << 10
MAX_HEADERS = 100
MAX_BODY_BYTES = 64 << 10
TEXT = "text/plain; charset=utf-8"

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class BadRequest(KVCacheError):  # noqa: N818  named as HTTP names it
    """The client's bytes are no request this server takes; `status` is what to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request(NamedTuple):
    """The head of a request; header names are lower case, repeated headers are joined with a comma."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    keep_alive: bool = True
    body_bytes: int = 0

    def argument(self, name: str) -> str:
        """The first value of a query parameter, empty if there is none."""
        try:
            return parse_qs(self.query, max_num_fields=20).get(name, [""])[0]
        except ValueError:
            return ""


class Response(NamedTuple):
    """What an endpoint answers; the server adds length, date and the security headers."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


def text(status: int, message: str, *headers: tuple[str, str]) -> Response:
    return Response(status, f"{message}\n".encode(), TEXT, headers)


def parse_head(head: bytes) -> Request:
    """Everything up to the empty line, that line left out; raises BadRequest."""
    start, *lines = head.split(b"\r\n")
    method, target, version = _request_line(start)
    headers = _headers(lines)
    if version == b"HTTP/1.1" and "host" not in headers:
        raise BadRequest(400, "the Host header is missing")
    path, _, query = target.partition("?")
    tokens = headers.get("connection", "").lower().replace(",", " ").split()
    keep_alive = version == b"HTTP/1.1" and "close" not in tokens
    return Request(method, path, query, headers, keep_alive, _body_bytes(headers))


def _request_line(line: bytes) -> tuple[str, str, bytes]:
    parts = line.split(b" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise BadRequest(400, "the request line is malformed")
    method, target, version = parts
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    return method.decode(), _origin_form(target.decode()), version


def _origin_form(target: str) -> str:
    if target.startswith("/"):
        return target
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise BadRequest(400, "the request target must start with /")
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"


def _headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise BadRequest(431, f"more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadRequest(400, "a header line is malformed")
        key, content = name.decode().lower(), value.strip(b" \t").decode("latin-1")
        headers[key] = f"{headers[key]}, {content}" if key in headers else content
    return headers


def _body_bytes(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(411, "chunked bodies are not taken; no endpoint needs a body")
    if "expect" in headers:
        raise BadRequest(417, "Expect is not supported; no endpoint needs a body")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(400, "Content-Length is not a number")
    if len(length) > 9 or int(length) > MAX_BODY_BYTES:
        raise BadRequest(413, f"the body is larger than {MAX_BODY_BYTES} bytes; no endpoint needs one")
    return int(length)


def encode(response: Response, *, head_only: bool, keep_alive: bool, headers: dict[str, str]) -> bytes:
    """The bytes to send; `headers` win over the response's own, which win over the defaults."""
    merged = {
        "Date": formatdate(usegmt=True),
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    }
    merged.update(response.headers)
    merged.update(headers)
    if not keep_alive:
        merged["Connection"] = "close"
    status = HTTPStatus(response.status)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {merged[name]}" for name in merged)]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if head_only else head + response.body
