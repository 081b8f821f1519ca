"""`healthy`: checks that the exporter on this machine answers; for health checks of containers."""

import argparse
import http.client
import ssl

from kvcache_exporter.commands.arguments import Subparsers, duration
from kvcache_exporter.commands.serve import DEFAULT_ADDRESS
from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.web.server import parse_listen

_PATH = "/-/healthy"


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "healthy",
        help="check that the exporter on this machine answers",
        epilog="Example: kvcache-exporter healthy --web.listen-address :9409",
        description="Requests /-/healthy from the exporter on this machine, over TLS if it uses that. Exits "
        "with 1 if there is no answer. A request for a password or a client certificate counts as an answer.",
    )
    parser.add_argument(
        "--web.listen-address", dest="listen", default=DEFAULT_ADDRESS, metavar="HOST:PORT",
        help="the address that serve listens on (default :9409)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=duration, default=3.0, metavar="T", help="how long to wait (default 3s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    host, port = parse_listen(arguments.listen)
    everywhere = host in ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound
    print(ask("127.0.0.1" if everywhere else host, port, arguments.timeout))
    return 0


def ask(host: str, port: int, timeout: float) -> str:
    """What the exporter answers in at most `timeout` seconds, twice that over TLS; raises KVCacheError."""
    try:
        try:
            return _get(http.client.HTTPConnection(host, port, timeout=timeout))
        except ConnectionResetError:  # how a port with TLS ends plain HTTP
            return _get_over_tls(host, port, timeout)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise KVCacheError(
            f"{host}:{port}: no answer from {_PATH}: {reason}; check that the exporter runs, and that "
            "--web.listen-address is the same as that of serve"
        ) from error


def _get_over_tls(host: str, port: int, timeout: float) -> str:
    # The certificate is for the public name, not for this address, and nothing secret is sent.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    connection.connect()
    try:
        return _get(connection)
    except (ssl.SSLError, ConnectionError):
        return "healthy: asks for a client certificate"


def _get(connection: http.client.HTTPConnection) -> str:
    try:
        connection.request("GET", _PATH)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status == http.HTTPStatus.UNAUTHORIZED:
        return "healthy: asks for a password"
    if status != http.HTTPStatus.OK:
        raise http.client.HTTPException(f"status {status}")
    return "healthy"
