"""/probe: what it shows of one target, and that it reaches nothing that is not allowed."""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import requests
from processes import Engine, wait_until

from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.config import Address, ProbeModule
from kvcache_exporter.config.probe_section import AllowEntry, parse_allow_entry, parse_network
from kvcache_exporter.errors import ConfigError, ProbeError
from kvcache_exporter.pages import ExporterPages
from kvcache_exporter.probe import checked, timeout_of
from kvcache_exporter.settings import read_config
from kvcache_exporter.web import WebServer, web_server

PAGE = (Path(__file__).parent / "fixtures/engines/vllm-0.32.0-plugin/page.prom").read_bytes()
Ask = Callable[..., requests.Response]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def engine(stack: ExitStack) -> Engine:
    made = stack.enter_context(closing(Engine(Path())))
    made.page = PAGE
    return made


def serve(stack: ExitStack, folder: Path, text: str) -> tuple[WebServer, App]:
    config = folder / "kvcache.yaml"
    config.write_text(text)
    app = App(config)
    app.start()
    stack.callback(app.stop)
    return stack.enter_context(web_server("127.0.0.1:0", ExporterPages(app))), app


def ask(server: WebServer, target: str, module: str = "", **headers: str) -> requests.Response:
    parameters = {"target": target} | ({"module": module} if module else {})
    return requests.get(f"{server.url}/probe", params=parameters, headers=headers, timeout=20)


def series(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_a_probe_shows_what_the_same_target_shows_on_metrics_less_what_needs_a_history(
    stack: ExitStack, tmp_path: Path, engine: Engine
) -> None:
    server, _ = serve(
        stack,
        tmp_path,
        f"targets: [{{static: ['{engine.address}']}}]\n"
        f"probe: {{modules: [{{name: any, allow: ['127.0.0.0/8:{engine.address.rpartition(':')[2]}']}}]}}\n",
    )
    probed = series(ask(server, engine.address).text)
    metrics = wait_until("the page", lambda: _metrics(server) if _has_tokens(server) else None)
    mine = f'target="{engine.address}"'
    volatile = c.TARGET_SCRAPE_DURATION.name
    untold = {
        name for name in metrics if mine in name or f'source="{engine.address}"' in name
    } - probed.keys()
    for name, value in probed.items():
        if name.partition("{")[0] != volatile and "kvcache_engine_time_to_first_token" not in name:
            assert metrics[name] == value, name
    history = {name.partition("{")[0] for name in untold}
    assert "kvcache_prompt_tokens_total" not in history
    assert history >= {c.DATA_ANOMALIES.name, c.WARM.name, c.TARGET_LAST_SUCCESS.name}
    assert probed[f'kvcache_target_up{{{mine},engine="vllm"}}'] == 1.0
    ttft = [value for name, value in probed.items() if name.startswith(f"{c.ENGINE_TTFT.name}_count")]
    split = [value for name, value in metrics.items() if name.startswith(f"{c.ENGINE_TTFT.name}_count")]
    assert sum(ttft) == sum(split) > 0
    assert not any("phase=" in name or "window=" in name for name in probed)
    assert any(name.startswith("kvcache_requests_total{source=") for name in probed), "the plugin's part"


def _metrics(server: WebServer) -> dict[str, float]:
    return series(requests.get(f"{server.url}/metrics", timeout=10).text)


def _has_tokens(server: WebServer) -> bool:
    return any(name.startswith("kvcache_prompt_tokens_total") for name in _metrics(server))


def test_openmetrics_and_gzip_are_negotiated_as_on_metrics(
    stack: ExitStack, tmp_path: Path, engine: Engine
) -> None:
    server, _ = serve(stack, tmp_path, _one_module(f"allow: ['127.0.0.1:{_port(engine)}']"))
    wanted = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}
    answer = ask(server, engine.address, **wanted)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.text.endswith("# EOF\n")


def _port(engine: Engine) -> int:
    return int(engine.address.rpartition(":")[2])


def _one_module(keys: str, more: str = "") -> str:
    return f"scrape: {{timeout: 3s}}\nprobe: {{modules: [{{name: m, {keys}}}]{more}}}\n"


def test_without_configuration_it_says_what_to_configure(stack: ExitStack, tmp_path: Path) -> None:
    server, app = serve(stack, tmp_path, "targets: [{static: ['127.0.0.1:1']}]\n")
    answer = ask(server, "127.0.0.1:1")
    assert answer.status_code == 404
    assert "probe: {modules: [{name: vllm, engine: vllm, allow:" in answer.text
    assert app.prober.results == {"not_configured": 1}
    assert "kvcache_exporter_probes_total" not in requests.get(f"{server.url}/metrics", timeout=10).text


@pytest.mark.parametrize(
    ("target", "module", "status", "says"),
    [
        ("127.0.0.1:1", "nope", 400, 'no module "nope"; add module=NAME, one of: m'),
        ("", "m", 400, "no target"),
        ("10.0.0.1", "m", 400, "expected an address such as"),
        ("http://127.0.0.1:1/secrets", "m", 400, "more than a host and a port"),
        ("127.0.0.1:1/secrets", "m", 400, "more than a host and a port"),
        ("user:hunter2@127.0.0.1:1", "m", 400, "found credentials"),
        ("127.0.0.1:1?x=y", "m", 400, "expected an address"),
        ("127.0.0.1:1\r\nX: y", "m", 400, "expected an address"),
        ("127.0.0.1:2", "m", 403, "127.0.0.1:2 is not allowed by module m; add it to probe.modules[].allow"),
        ("127.0.0.2:1", "m", 403, "not allowed"),
        ("localhost:1", "m", 403, "not allowed"),
        ("[::1]:1", "m", 403, "not allowed"),
        ("a" * 400 + ":1", "m", 400, "no target, or more"),
        ("0x7f000001:1", "m", 403, "not allowed"),
        ("127.1:1", "m", 403, "not allowed"),
    ],
)
def test_what_is_not_asked_is_refused_with_a_reason(
    stack: ExitStack, tmp_path: Path, *, target: str, module: str, status: int, says: str
) -> None:
    server, _ = serve(stack, tmp_path, _one_module("allow: ['127.0.0.1:1']"))
    answer = ask(server, target, module)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert "hunter2" not in answer.text
    result = "forbidden" if status == 403 else "bad_request"
    assert f'kvcache_exporter_probes_total{{result="{result}"}} 1.0' in (
        requests.get(f"{server.url}/metrics", timeout=10).text
    )


class Trap:
    """Listens on an address; `connected` holds who came."""

    def __init__(self, host: str, port: int = 0, answer: bytes = b"") -> None:
        self.connected: list[bytes] = []
        self._listener = socket.create_server((host, port))
        self.port: int = self._listener.getsockname()[1]
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.connected.append(connection.recv(65536))
                connection.sendall(self._answer)

    def close(self) -> None:
        self._listener.close()


def _whole(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [
        b"HTTP/1.1 " + status,
        b"Content-Length: %d" % len(body),
        b"Connection: close",
        *headers,
        b"",
        body,
    ]
    return b"\r\n".join([*lines, *headers, b"", body])


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What look-ups of a name give, one list of addresses after the other, the last for ever."""
    answers: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if host not in answers:
            return real(host, port, *args, **more)
        found = answers[host].pop(0) if len(answers[host]) > 1 else answers[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answers


def test_a_name_that_is_looked_up_again_cannot_lead_elsewhere(
    stack: ExitStack, tmp_path: Path, names: dict[str, list[list[str]]]
) -> None:
    good = stack.enter_context(closing(Trap("127.0.0.1", answer=_whole(PAGE))))
    bad = stack.enter_context(closing(Trap("127.0.0.2", good.port, _whole(PAGE))))
    names["engine.test"] = [["127.0.0.2", "127.0.0.1"], ["127.0.0.2"]]
    keys = f"allow: ['*.test:{good.port}'], networks: [127.0.0.1]"
    server, _ = serve(stack, tmp_path, _one_module(keys))
    assert f'kvcache_target_up{{target="engine.test:{good.port}",engine="vllm"}} 1.0' in (
        ask(server, f"engine.test:{good.port}").text
    )
    assert good.connected[0].startswith(b"GET /metrics HTTP/1.1\r\nHost: engine.test:")
    assert ask(server, f"engine.test:{good.port}").status_code == 403
    assert bad.connected == []


def test_a_redirect_leads_nowhere(stack: ExitStack, tmp_path: Path) -> None:
    elsewhere = stack.enter_context(closing(Trap("127.0.0.1", answer=_whole(PAGE))))
    to = b"Location: http://127.0.0.1:%d/metrics" % elsewhere.port
    target = stack.enter_context(closing(Trap("127.0.0.1", answer=_whole(b"", to, status=b"302 Found"))))
    server, _ = serve(stack, tmp_path, _one_module(f"allow: ['127.0.0.1:{target.port}']"))
    name = f"127.0.0.1:{target.port}"
    page = series(ask(server, name).text)
    assert page[f'kvcache_probe_failed{{target="{name}",reason="redirect"}}'] == 1.0
    assert page[f'kvcache_target_up{{target="{name}"}}'] == 0.0
    assert elsewhere.connected == []


def test_a_bomb_and_an_endless_page_are_refused_within_bounds(stack: ExitStack, tmp_path: Path) -> None:
    bomb = _whole(gzip.compress(b"a" * 30_000_000), b"Content-Encoding: gzip")
    target = stack.enter_context(closing(Trap("127.0.0.1", answer=bomb)))
    server, _ = serve(stack, tmp_path, _one_module(f"allow: ['127.0.0.1:{target.port}']"))
    assert 'reason="too_large"' in ask(server, f"127.0.0.1:{target.port}").text


def test_a_silent_target_costs_the_time_that_prometheus_gives_and_few_probes_run_at_once(
    stack: ExitStack, tmp_path: Path
) -> None:
    silent = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
    name = f"127.0.0.1:{silent.getsockname()[1]}"
    server, app = serve(stack, tmp_path, _one_module(f"allow: ['{name}']", ", concurrency: 1"))
    first: list[requests.Response] = []
    timeout = {"X-Prometheus-Scrape-Timeout-Seconds": "2.5"}
    thread = threading.Thread(target=lambda: first.append(ask(server, name, **timeout)))
    thread.start()
    wait_until("the first probe being at it", lambda: app.prober._running == 1)
    assert ask(server, name).status_code == 503
    thread.join()
    page = series(first[0].text)
    assert page[f'kvcache_probe_failed{{target="{name}",reason="timeout"}}'] == 1.0
    assert 1.9 < page[f'kvcache_target_scrape_duration_seconds{{target="{name}"}}'] < 3.0
    assert app.prober.results == {"down": 1, "busy": 1}


def test_a_reload_changes_what_may_be_asked(stack: ExitStack, tmp_path: Path, engine: Engine) -> None:
    server, _ = serve(stack, tmp_path, _one_module("allow: ['127.0.0.1:1']"))
    assert ask(server, engine.address).status_code == 403
    (tmp_path / "kvcache.yaml").write_text(_one_module(f"allow: ['127.0.0.1:{_port(engine)}']"))
    assert requests.post(f"{server.url}/-/reload", timeout=10).status_code == 200
    assert ask(server, engine.address).status_code == 200


def test_the_modules_token_is_sent_and_never_shown(stack: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2")
    target = stack.enter_context(closing(Trap("127.0.0.1", answer=_whole(b"", status=b"401 No"))))
    keys = f"allow: ['127.0.0.1:{target.port}'], bearer_token_file: token, path: /stats"
    server, _ = serve(stack, tmp_path, _one_module(keys))
    answer = ask(server, f"127.0.0.1:{target.port}")
    assert 'reason="credentials"' in answer.text
    assert target.connected[0].startswith(b"GET /stats ")
    assert b"Authorization: Bearer hunter2\r\n" in target.connected[0]
    shown = answer.text + requests.get(f"{server.url}/config", timeout=10).text
    assert "hunter2" not in shown


def _module(*allow: str, networks: tuple[str, ...] = ()) -> ProbeModule:
    entries = tuple(filter(None, map(parse_allow_entry, allow)))
    assert len(entries) == len(allow)
    return ProbeModule(name="m", allow=entries, networks=tuple(filter(None, map(parse_network, networks))))


@pytest.mark.parametrize(
    ("module", "host", "leads_to", "allowed"),
    [
        (_module("*.llm.svc:1"), "a.llm.svc", "10.0.0.1", True),
        (_module("*.llm.svc:1"), "A.LLM.svc.", "10.0.0.1", True),
        (_module("*.llm.svc:1"), "a.b.llm.svc", "10.0.0.1", False),
        (_module("*.llm.svc:1"), "llm.svc", "10.0.0.1", False),
        (_module("*.llm.svc:1"), "a.llm.svc.evil.example", "10.0.0.1", False),
        (_module("vllm-*:1"), "vllm-0", "10.0.0.1", True),
        (_module("*:2"), "a", "10.0.0.1", False),
        # A number is an address too, to the system's look-up.
        (_module("*:1"), "2130706433", "127.0.0.1", False),
        (_module("*:1"), "metadata", "169.254.169.254", False),
        (_module("*:1"), "metadata", "::ffff:169.254.169.254", False),
        (_module("*:1"), "local", "127.0.0.1", False),
        (_module("*:1"), "local", "::1", False),
        (_module("*:1"), "local", "0.0.0.0", False),
        (_module("*:1"), "link", "fe80::1%eth0", False),
        (_module("*:1", networks=("127.0.0.0/8",)), "local", "127.0.0.1", True),
        (_module("*:1", networks=("10.0.0.0/8",)), "outside", "192.0.2.1", False),
        (_module("10.0.0.0/8:1"), "10.1.2.3", "10.1.2.3", True),
        (_module("10.0.0.0/8:1"), "11.1.2.3", "11.1.2.3", False),
        (_module("10.0.0.0/8:1"), "a", "10.1.2.3", False),
        (_module("[fd00::]/8:1"), "[fd12::1]", "fd12::1", True),
        (_module("[fd00::1]:1"), "[fd00::2]", "fd00::2", False),
        (_module("10.0.0.0/8:1"), "[::ffff:10.1.2.3]", "::ffff:10.1.2.3", True),
        (_module("*:1"), "10.1.2.3", "10.1.2.3", False),
    ],
)
def test_both_the_name_and_where_it_leads_must_be_allowed(
    monkeypatch: pytest.MonkeyPatch, module: ProbeModule, host: str, leads_to: str, allowed: bool
) -> None:
    monkeypatch.setattr("kvcache_exporter.lookups.resolve", lambda *_: [(2, 1, 6, "", (leads_to, 1))])
    ends_at = time.monotonic() + 10.0
    if allowed:
        assert [info[4][0] for info in checked(module, Address(host, 1), ends_at)("", 0, 1.0)] == [leads_to]
    else:
        with pytest.raises(ProbeError) as caught:
            checked(module, Address(host, 1), ends_at)
        assert caught.value.reason == "forbidden"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("10", 5.0), ("3", 2.5), ("0.6", 0.3), ("", 5.0), ("nan", 5.0), ("inf", 5.0), ("-1", 5.0), ("x", 5.0)],
)
def test_the_time_for_a_target_is_less_than_prometheus_waits(header: str, seconds: float) -> None:
    assert timeout_of(header, 0.5, 5.0) == seconds


@pytest.mark.parametrize(
    "entry",
    [
        "10.0.0.1",
        "10.0.0.1/8:80",
        "a b:80",
        "a:0",
        "a:65536",
        "a:*",
        "http://a:80",
        "fd00::1:80",
        "[fd00::1:80",
        ":80",
    ],
)
def test_an_entry_that_would_allow_something_else_is_refused(tmp_path: Path, entry: str) -> None:
    config = tmp_path / "kvcache.yaml"
    config.write_text(f"probe: {{modules: [{{name: m, allow: ['{entry}']}}]}}\n")
    with pytest.raises(
        ConfigError, match=r"probe.modules\[0\].allow\[0\]: found .*expected a host or network"
    ):
        read_config(config)


def test_entries_of_the_example() -> None:
    assert parse_allow_entry("10.0.0.0/8:8000") == AllowEntry(
        "10.0.0.0/8:8000", 8000, parse_network("10.0.0.0/8")
    )
    assert parse_allow_entry("*.LLM.svc:80") == AllowEntry("*.LLM.svc:80", 80, None, "*.llm.svc")
