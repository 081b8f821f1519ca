"""The HTTP client for publishing: timeouts, bounded retries, helpful errors, and a token never shown."""

import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Any

import requests

from kvcache_exporter.config import split_server_url
from kvcache_exporter.errors import KVCacheError, UsageError

RETRIED = (429, 500, 502, 503, 504)
_ATTEMPTS = 5
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_TIMEOUT = (5.0, 30.0)
_LONGEST_MESSAGE = 400
_ADVICE = {
    400: "the server refused the content",
    401: "the token is missing, wrong or expired: give --token-file or set KVCACHE_TOKEN",
    403: "the token lacks permission: let its account read and write here",
    404: "nothing is found at this address: check --url and whether this API is enabled",
    405: "this address does not accept the request: check --url and whether this API is enabled",
    409: "it exists already",
    412: "it was changed by someone else meanwhile, or the name is taken: see what is there with --dry-run",
    422: "the server refused the content",
    429: "the server still asks for fewer requests: try again later",
}


class PublishError(KVCacheError):
    """Something could not be published; says what the server answered and what to do."""


class ApiError(PublishError):
    """The server answered with an error; `status` is the HTTP status, `text` the server's message."""

    def __init__(self, status: int, request: str, text: str) -> None:
        named = f"{status} {responses.get(status, '')}".strip()
        advice = _ADVICE.get(status, "the server failed" if status >= 500 else "unexpected answer")
        super().__init__(f"{request}: {named}: {advice}" + (f" (the server says: {text})" if text else ""))
        self.status = status
        self.text = text


class _Authorization(requests.auth.AuthBase):
    """Always set, so that requests does not look into ~/.netrc."""

    def __init__(self, token: str, user: str) -> None:
        self._basic = requests.auth.HTTPBasicAuth(user, token) if user else None
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._basic:
            self._basic(request)
        elif self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Client:
    """Sends requests to one server; with a `user`, the token is the password of basic authentication."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        user: str = "",
        headers: dict[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            parts = split_server_url(url)
        except ValueError as error:
            raise UsageError(f"--url: {error}") from None
        if parts.username or parts.password:
            raise UsageError(f"--url: found credentials for {parts.hostname}; give them by --token-file")
        self.url = url.rstrip("/")
        self._token = token
        self._sleep = sleep
        self._session = requests.Session()
        self._session.auth = _Authorization(token, user)
        self._session.headers.update({"User-Agent": "kvcache-exporter", **(headers or {})})

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.send("GET", path, **options)

    def post(self, path: str, **options: Any) -> requests.Response:
        return self.send("POST", path, **options)

    def send(
        self, method: str, path: str, *, retried: Collection[int] = RETRIED, **options: Any
    ) -> requests.Response:
        """A successful answer; raises ApiError for any other, PublishError if there is none."""
        pause = _FIRST_PAUSE
        for left in reversed(range(_ATTEMPTS)):
            try:
                answer = self._session.request(
                    method, self.url + path, timeout=_TIMEOUT, allow_redirects=False, **options
                )
            except (requests.ConnectionError, requests.Timeout) as error:
                if not left:
                    raise PublishError(f"{method} {self.url}{path}: {self._reason(error)}") from None
                self._sleep(pause)
            except requests.RequestException as error:
                raise PublishError(f"{method} {self.url}{path}: {self._reason(error)}") from None
            else:
                if answer.status_code not in retried or not left:
                    return self._checked(answer, f"{method} {self.url}{path}")
                self._sleep(_asked_pause(answer, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("the last attempt returns or raises")

    def json(self, answer: requests.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            kind = answer.headers.get("Content-Type", "nothing")
            raise PublishError(f"{answer.url}: expected JSON, got {kind}: is --url right?") from None

    def _checked(self, answer: requests.Response, request: str) -> requests.Response:
        if 300 <= answer.status_code < 400:
            target = answer.headers.get("Location", "nowhere")
            raise PublishError(f"{request}: redirects to {target}: give the final address as --url")
        if answer.status_code >= 400:
            raise ApiError(answer.status_code, request, self._words(answer))
        return answer

    def _words(self, answer: requests.Response) -> str:
        """The server's message on one line, without the token."""
        try:
            body = answer.json()
        except ValueError:
            body = answer.text
        if isinstance(body, dict):
            # Grafana says {status, message}, Prometheus {errorType, error}.
            said = [body[key] for key in ("status", "message", "errorType", "error") if body.get(key)]
            body = ": ".join(map(str, said))
        text = " ".join(str(body).split())[:_LONGEST_MESSAGE]
        return text.replace(self._token, "<token>") if self._token else text

    def _reason(self, error: Exception) -> str:
        if isinstance(error, requests.exceptions.SSLError):
            return "the server's certificate is not trusted: set REQUESTS_CA_BUNDLE to your CA's file"
        if isinstance(error, requests.Timeout):
            return "no answer in time: is the server reachable?"
        if isinstance(error, requests.ConnectionError):
            return "cannot connect: is the address right and the server up?"
        return f"the request cannot be sent: {type(error).__name__}"


def _asked_pause(answer: requests.Response, otherwise: float) -> float:
    """Seconds asked for by Retry-After (a number or a date), up to the longest pause."""
    asked = answer.headers.get("Retry-After", "")
    if asked.isdecimal():
        return min(float(asked), _LONGEST_PAUSE)
    try:
        at = parsedate_to_datetime(asked)
    except ValueError:
        return otherwise
    seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_PAUSE)
