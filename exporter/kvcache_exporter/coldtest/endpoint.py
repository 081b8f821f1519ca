"""The engine under test: its address, its models, and one connection to it per thread."""

import http.client
import ssl
import time
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from urllib3.exceptions import HTTPError, NewConnectionError, SSLError
from urllib3.exceptions import TimeoutError as PoolTimeoutError
from urllib3.response import BaseHTTPResponse

from kvcache_exporter import __version__
from kvcache_exporter.coldtest.load import Messages
from kvcache_exporter.coldtest.stream import Reply, RequestError, read_reply
from kvcache_exporter.config import split_server_url
from kvcache_exporter.errors import KVCacheError, UsageError
from kvcache_exporter.scrape.transport import Attempt, open_pool

_ASK_SECONDS = 10.0
_PIECE = 1 << 16
_MOST_MODELS_BYTES = 1 << 22


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server."""

    url: str
    """Without /v1 and without credentials."""
    key: str = ""

    @classmethod
    def at(cls, url: str, key_file: Path | None, *, plain_http: bool) -> "Endpoint":
        """Raises UsageError for a malformed URL, and for one that would send the key in the clear."""
        try:
            parts = split_server_url(url)
        except ValueError as error:
            raise UsageError(f"--url: {error}") from None
        if parts.username or parts.password:
            raise UsageError(f"--url: found credentials for {parts.hostname}; give them by --api-key-file")
        if parts.query or parts.fragment:
            raise UsageError(f"--url: expected the address of {parts.hostname} without ? and #")
        found = cls(url.rstrip("/").removesuffix("/v1"), _key(key_file))
        if found.key and parts.scheme == "http" and not found.is_local and not plain_http:
            clear = "the API key would cross the network in the clear"
            raise UsageError(f"--url {url}: {clear}: use https, or --allow-plain-http")
        return found

    @property
    def is_local(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.url.startswith("https:") else None


def _key(path: Path | None) -> str:
    key = path.read_text().strip() if path else ""
    if path and (not key or not key.isascii() or not key.isprintable()):
        raise UsageError(f"--api-key-file {path}: expected the key on one line, in ASCII")
    return key


class Model(msgspec.Struct):
    """One entry of /v1/models; `owned_by` is `vllm` or `sglang` if the engine itself answers."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[Model]


class Client:
    """One connection, for one thread at a time; uses no proxy or cookies and follows no redirects."""

    def __init__(self, endpoint: Endpoint) -> None:
        parts = urlsplit(endpoint.url)
        self._attempt = Attempt()
        self._pool = open_pool(
            parts.hostname or "", parts.port, self._attempt, endpoint.tls, server_name=None
        )
        self._path = parts.path
        self._headers = {
            "User-Agent": f"kvcache-exporter/{__version__}",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}),
        }

    def close(self) -> None:
        self._pool.close()

    def status(self, path: str) -> int:
        """The HTTP status of a page; 0 without an answer."""
        try:
            with self._sent("GET", path, None, _ASK_SECONDS) as response:
                response.read(_PIECE)
                return response.status
        except (RequestError, HTTPError, OSError):
            return 0

    def models(self) -> list[Model]:
        """The models served; raises RequestError if the server does not list them."""
        with self._sent("GET", "/v1/models", None, _ASK_SECONDS) as response:
            _check(response)
            try:
                return msgspec.json.decode(response.read(_MOST_MODELS_BYTES), type=_Models).data
            except (msgspec.DecodeError, HTTPError, OSError):
                raise RequestError("no list of models") from None

    def ask(self, model: str, messages: Messages, max_tokens: int, seconds: float) -> Reply:
        """One streamed completion within a deadline; raises RequestError."""
        body = msgspec.json.encode({
            "model": model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        })  # fmt: skip
        started = time.perf_counter()
        response = self._sent("POST", "/v1/chat/completions", body, seconds)
        try:
            _check(response)
            _check_streams(response)
            reply = read_reply(lambda: response.read1(_PIECE), started)
            response.drain_conn()
        except (HTTPError, OSError, http.client.HTTPException) as error:
            response.close()
            raise RequestError("timeout" if _is_timeout(error) else "cut off") from None
        except RequestError:
            response.close()
            raise
        return reply

    def _sent(self, method: str, path: str, body: bytes | None, seconds: float) -> BaseHTTPResponse:
        try:
            return self._send(method, path, body, seconds)
        except (HTTPError, OSError, http.client.HTTPException) as error:
            if self._attempt.connected or _is_timeout(error):
                raise RequestError(_unsent(error)) from None
        # A server may close an idle connection just when it is used again.
        try:
            return self._send(method, path, body, seconds)
        except (HTTPError, OSError, http.client.HTTPException) as error:
            raise RequestError(_unsent(error)) from None

    def _send(self, method: str, path: str, body: bytes | None, seconds: float) -> BaseHTTPResponse:
        self._attempt.start(seconds)
        return self._pool.urlopen(
            method,
            self._path + path,
            body=body,
            headers=self._headers,
            retries=False,
            redirect=False,
            timeout=seconds,
            preload_content=False,
        )


def _check(response: BaseHTTPResponse) -> None:
    if response.status != 200:
        raise RequestError(f"HTTP {response.status}")


def _check_streams(response: BaseHTTPResponse) -> None:
    if "text/event-stream" not in response.headers.get("Content-Type", ""):
        raise RequestError("not a stream")


def _is_timeout(error: BaseException) -> bool:
    # urllib3 derives a refused connection from its timeouts.
    return isinstance(error, TimeoutError | PoolTimeoutError) and not isinstance(error, NewConnectionError)


def _unsent(error: BaseException) -> str:
    if isinstance(error, SSLError):
        return "no trusted TLS"
    return "timeout" if _is_timeout(error) else "no connection"


def choose_model(endpoint: Endpoint, wanted: str) -> Model:
    """The model under test; raises KVCacheError or UsageError that lists the models there are."""
    client = Client(endpoint)
    try:
        models = client.models()
    except RequestError as error:
        if error.reason == "HTTP 404" and wanted:
            return Model(wanted)
        raise KVCacheError(f"{endpoint.url}/v1/models: {error.reason}: {advice(error.reason)}") from None
    finally:
        client.close()
    fitting = [model for model in models if wanted in ("", model.id)]
    if len(fitting) == 1 or (fitting and wanted):
        return fitting[0]
    names = ", ".join(model.id for model in models[:20]) or "none"
    raise UsageError(f"--model {wanted or 'is needed'}: {endpoint.url} serves {names}")


_ADVICE = {
    "timeout": "nothing came in time: is the engine overloaded? See --timeout",
    "no connection": "is the address right and the engine up?",
    "no trusted TLS": "set SSL_CERT_FILE to the file of your CA; see that the certificate is for this name",
    "cut off": "the connection ended before the reply did: see the engine's log",
    "not a stream": "the server answered without streaming: is --url a chat completions endpoint?",
    "HTTP 400": "the engine refuses the request: is a prompt longer than its context?",
    "HTTP 401": "the key is missing or wrong: see --api-key-file",
    "HTTP 403": "the key may not do this",
    "HTTP 404": "no such model or address: see --url and --model",
    "HTTP 429": "the server asks for fewer requests: lower --concurrency",
}


def advice(reason: str) -> str:
    if reason.startswith("HTTP 3"):
        return "the server redirects, which is not followed: give the final address as --url"
    return _ADVICE.get(reason, "see the engine's log")
