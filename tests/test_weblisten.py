"""Listen addresses: what is understood, and what is said of the rest."""

import socket

import pytest
import requests

from kvcache_exporter.errors import ConfigError, KVCacheError
from kvcache_exporter.webhttp import text
from kvcache_exporter.weblisten import listen_on, parse_listen, url_of
from kvcache_exporter.webserver import WebServer


def test_ipv6_is_served() -> None:
    try:
        server = WebServer("[::1]:0", lambda request: text(200, request.path))
    except KVCacheError:
        pytest.skip("no IPv6 on this machine")
    with server:
        assert server.url.startswith("http://[::1]:")
        assert requests.get(server.url, timeout=10).status_code == 200


def test_a_taken_port_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(KVCacheError) as caught:
            listen_on(place)
    assert str(caught.value) == (
        f"cannot listen on {place}: Address already in use; "
        "stop what uses it or choose another --web.listen-address"
    )


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        (":9409", ("", 9409)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9409", ("::1", 9409)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_listen_addresses(address: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(address) == parsed


@pytest.mark.parametrize(
    "address", ["", "9409", "::1:9409", "[::1]", "host:", "host:70000", "host:-1", "h:٣"]
)
def test_malformed_listen_addresses_say_so(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^--web\.listen-address: expected "):
        parse_listen(address)


def test_a_host_without_an_address_is_told() -> None:
    with pytest.raises(KVCacheError, match=r"^cannot listen on nowhere\.invalid:1: "):
        listen_on("nowhere.invalid:1")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (("::", 9409), "https://127.0.0.1:9409"),
        (("0.0.0.0", 80), "https://127.0.0.1:80"),
        (("::1", 1), "https://[::1]:1"),
        (("10.0.0.1", 1), "https://10.0.0.1:1"),
    ],
)
def test_the_url_is_one_that_can_be_asked(address: tuple[str, int], url: str) -> None:
    assert url_of(address, tls=True) == url
