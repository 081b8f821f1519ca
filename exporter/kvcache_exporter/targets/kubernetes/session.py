"""Requests to a Kubernetes API server: credentials, and a closed reason for every failure."""

import socket
import ssl
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from kvcache_exporter import __version__
from kvcache_exporter.targets.base import DiscoveryError
from kvcache_exporter.targets.kubernetes.found import Role

_CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds: a connection dropped by a firewall is noticed within a minute, even on a quiet watch."""


@dataclass(frozen=True, slots=True)
class Collection:
    """The objects of one kind in one namespace ("" for all) that match a label selector."""

    role: Role
    namespace: str
    selector: str

    @property
    def path(self) -> str:
        start = f"/apis/{self.role.api_group}/v1" if self.role.api_group else "/api/v1"
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{start}{within}/{self.role.plural}"

    @property
    def parameters(self) -> dict[str, str]:
        return {"labelSelector": self.selector} if self.selector else {}

    def __str__(self) -> str:
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        return f"{self.role.plural} in {where}"


class RequestError(DiscoveryError):
    """A request to the API server failed."""

    def __init__(self, message: str, reason: str, *, retry_after: float = 0.0, is_gone: bool = False) -> None:
        super().__init__(message, reason)
        self.retry_after = retry_after
        """Seconds to wait, by the server's Retry-After."""
        self.is_gone = is_gone
        """Whether the requested version is too old, so that a new list is needed."""


def open_client(kubeconfig: str | None) -> httpx2.AsyncClient:
    """A client with the current credentials, so that rotated ones take effect; raises RequestError."""
    try:
        config = _cluster(kubeconfig)
        client = AsyncClient(
            config, ConnectionParams(timeout=httpx2.Timeout(ANSWER_SECONDS, connect=_CONNECT_SECONDS))
        )
    except (
        ConfigError,
        OSError,
        yaml.YAMLError,
        msgspec.MsgspecError,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
    ) as error:
        told = (
            f"{type(error).__name__}: {error}" if isinstance(error, LookupError | TypeError) else str(error)
        )
        hint = (
            "run in a pod with a service account, or set kubeconfig or KUBECONFIG to a file that can be used"
        )
        raise RequestError(f"no access to a cluster: {told}; {hint}", "credentials") from None
    client.headers["User-Agent"] = f"kvcache-exporter/{__version__}"
    return client


def _cluster(kubeconfig: str | None) -> SingleConfig:
    file = kubeconfig or environ.get("KUBECONFIG")
    if not file and not Path(SERVICE_ACCOUNT).is_dir():
        raise ConfigError(f"there is no service account in {SERVICE_ACCOUNT}")
    found = (KubeConfig.from_file(file) if file else KubeConfig.from_service_account(SERVICE_ACCOUNT)).get()
    if found is None:
        raise ConfigError("the kubeconfig has no current context")
    return found._replace(user=found.user or User())


def check_status(response: httpx2.Response, verb: str, collection: Collection) -> None:
    """Raises RequestError for any answer but 200."""
    if response.status_code != 200:
        raise refusal(response.status_code, verb, collection, response.headers.get("Retry-After", ""))


def refusal(status: int, verb: str, collection: Collection, retry_after: str = "") -> RequestError:
    role, start = collection.role, f"{verb} of {collection}: HTTP status {status}"
    pause = min(float(retry_after), 300.0) if retry_after.isdecimal() and len(retry_after) < 9 else 0.0
    if status == 401:
        return RequestError(
            f"{start}: the token or certificate is not accepted; it is read again", "credentials"
        )
    if status == 403:
        right = f'{verb} on {role.plural} (API group "{role.api_group}")'
        by = f"a Role in namespace {collection.namespace}" if collection.namespace else "a ClusterRole"
        return RequestError(f"{start}: the account lacks {right}; grant list and watch by {by}", "forbidden")
    if status == 410:
        return RequestError(f"{start}: the version asked for is gone", "invalid", is_gone=True)
    if status == 429:
        return RequestError(f"{start}: the server asks for fewer requests", "throttled", retry_after=pause)
    hint = "check the selector" if status == 400 else "check the address and the state of the API server"
    return RequestError(f"{start}, expected 200; {hint}", "http_status", retry_after=pause)


def explained(error: Exception, collection: Collection) -> DiscoveryError:
    """The error of a list or watch, with a message and a reason."""
    if isinstance(error, DiscoveryError):
        return error
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            return _failure(collection, f"TLS failed: {cause.reason or cause}; check the cluster's CA", "tls")
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return _failure(collection, "the API server does not answer in time", "timeout")
    if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
        return _failure(collection, "the API server closed the connection too early", "truncated")
    if isinstance(error, httpx2.TransportError):
        return _failure(collection, f"the API server cannot be reached: {error}", "connection")
    if isinstance(error, msgspec.DecodeError):
        return _failure(collection, f"the answer is not understood: {error}", "invalid")
    if isinstance(error, ConfigError | OSError):
        # Of files and plugins; network errors are the client's own types.
        return _failure(collection, f"no credentials: {error}", "credentials")
    return _failure(collection, f"{type(error).__name__}: {error}", "internal")


def keep_alive(response: httpx2.Response) -> None:
    """Enable TCP keep-alive probes on the connection."""
    connection: Any = response.extensions["network_stream"].get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE:
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _failure(collection: Collection, what: str, reason: str) -> RequestError:
    return RequestError(f"{collection}: {what}", reason)


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes
