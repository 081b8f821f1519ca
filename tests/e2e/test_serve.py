"""The running exporter as an operator meets it: bad targets, bad logs, reload, exit codes."""

import gzip
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread

import pytest
import requests
from processes import Engine, free_port, running, scrape, start_exporter, wait_until

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[1] / "fixtures/engines/vllm-0.32.0/page.prom").read_bytes()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


def _whole(body: bytes, extra: bytes = b"") -> bytes:
    return HEAD + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _drip(connection: socket.socket) -> None:
    for _ in range(100):
        connection.sendall(b"H")
        time.sleep(0.1)


TARGETS: dict[str, bytes | Callable[[socket.socket], None] | None] = {
    "healthy": _whole(PAGE),
    "dead": None,
    "hung": lambda _: time.sleep(10),
    "dripping": _drip,
    "truncated": HEAD + b"Content-Length: 99999\r\n\r\n" + PAGE[:500],
    "cut": HEAD + b"\r\n" + PAGE[:503],
    "html": _whole(b"<html>welcome</html>", b"X: 1\r\n").replace(b"text/plain", b"text/html"),
    "binary": _whole(bytes(range(256)) * 4),
    "huge": _whole(b"# filler\n" * 300_000),
    "bomb": _whole(gzip.compress(b"a" * 30_000_000), b"Content-Encoding: gzip\r\n"),
    "broken gzip": _whole(b"not gzip at all", b"Content-Encoding: gzip\r\n"),
    "refusing": b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2/metrics\r\nContent-Length: 0\r\n\r\n",
    "stranger": _whole(b"# TYPE up gauge\nup 1\n"),
}
REASONS = {
    "dead": "connection",
    "hung": "timeout",
    "dripping": "timeout",
    "truncated": "truncated",
    "cut": "truncated",
    "html": "not_metrics",
    "binary": "not_metrics",
    "huge": "too_large",
    "bomb": "too_large",
    "broken gzip": "encoding",
    "refusing": "http_status",
    "elsewhere": "redirect",
    "stranger": "unknown_engine",
}


def _serve(listener: socket.socket, answer: bytes | Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        Thread(target=_answer, args=(connection, answer), daemon=True).start()


def _answer(connection: socket.socket, answer: bytes | Callable[[socket.socket], None]) -> None:
    with connection:
        try:
            connection.recv(65536)
            if callable(answer):
                answer(connection)
            else:
                connection.sendall(answer)
        except OSError:
            pass


@pytest.fixture
def addresses() -> Iterator[dict[str, str]]:
    found: dict[str, str] = {}
    with ExitStack() as stack:
        for name, answer in TARGETS.items():
            if answer is None:
                found[name] = f"127.0.0.1:{free_port()}"
                continue
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            found[name] = f"127.0.0.1:{listener.getsockname()[1]}"
            Thread(target=_serve, args=(listener, answer), daemon=True).start()
        yield found


BAD_LINES = {
    b"not json at all\n": "not_json",
    b'{"ts":1,"usage":{"prompt_tokens":10\n': "not_json",
    b"\xff\xfe\n": "not_utf8",
    b'{"model":"m","usage":{"prompt_tokens":-5,"prompt_tokens_details":{"cached_tokens":1}}}\n': "invalid",
    b'{"model":"m","usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":5}}}\n': (
        "cached_exceeds_prompt"
    ),
    b'{"padding":"' + b"x" * 2_000_000 + b'"}\n': "too_long",
}
GOOD_LINE = (
    b'{"ts":"2026-11-29T10:00:01Z","model":"m","status":200,"ttft_ms":80,'
    b'"usage":{"prompt_tokens":2000,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}\n'
)


def test_every_bad_input_has_its_reason_and_everything_else_lives(
    tmp_path: Path, addresses: dict[str, str]
) -> None:
    port, config, usage_log = free_port(), tmp_path / "kvcache.yaml", tmp_path / "usage.jsonl"
    usage_log.write_bytes(b"".join(line + GOOD_LINE for line in BAD_LINES))
    listed = ", ".join(f'"{address}"' for address in addresses.values())
    config.write_text(
        "scrape: {interval: 1s, timeout: 500ms, max_page_bytes: 2MiB}\n"
        f"targets: [{{static: [{listed}]}}]\n"
        f"requests: [{{name: app, format: openai_chat, paths: ['{usage_log}'], start_at: beginning,"
        " max_line_bytes: 1MiB}]\n"
    )
    with running(start_exporter(config, port, tmp_path / "log")) as process:
        failures = 'kvcache_target_scrape_failures_total{{target="{}",reason="{}"}}'

        def every_reason() -> bool:
            page = scrape(port)
            return all(failures.format(addresses[name], reason) in page for name, reason in REASONS.items())

        wait_until("a reason for each bad target", every_reason)
        started = time.monotonic()
        page = scrape(port)
        assert time.monotonic() - started < 5, "hung targets must not delay the page"
        for name, address in addresses.items():
            up = sum(v for k, v in page.items() if k.startswith(f'kvcache_target_up{{target="{address}"'))
            assert up == (name == "healthy"), name
        for reason in set(BAD_LINES.values()):
            expected = sum(r == reason for r in BAD_LINES.values())
            series = f'kvcache_log_parse_failures_total{{source="app",reason="{reason}"}}'
            assert page[series] == expected, reason
        miss = [v for k, v in page.items() if k.startswith("kvcache_requests_total") and '"miss"' in k]
        assert miss == [len(BAD_LINES)]
        assert process.poll() is None
    assert "not json at all" not in (tmp_path / "log").read_text(), "no text of a line is ever logged"


def _reloads(log: Path) -> int:
    return log.read_text().count("configuration reloaded")


def test_reload_takes_a_good_file_and_keeps_the_old_one_on_a_bad(tmp_path: Path) -> None:
    port, config, log = free_port(), tmp_path / "kvcache.yaml", tmp_path / "log"
    config.write_text("targets: [{static: ['127.0.0.1:1']}]\n")
    url = f"http://127.0.0.1:{port}"
    with running(start_exporter(config, port, log)) as process:
        wait_until("the first page", lambda: scrape(port))
        config.write_text("targets: [{static: ['127.0.0.1:2']}]\n")
        assert requests.post(f"{url}/-/reload", timeout=5).status_code == 200
        wait_until("the new target", lambda: 'kvcache_target_up{target="127.0.0.1:2"}' in scrape(port))
        assert 'kvcache_target_up{target="127.0.0.1:1"}' not in scrape(port)

        config.write_text("targets: [{static: ['127.0.0.1:3']}]\nscrape: {interval: soon}\n")
        refused = requests.post(f"{url}/-/reload", timeout=5)
        assert refused.status_code == 500
        assert "kvcache.yaml:2:20: scrape.interval: found" in refused.text
        page = scrape(port)
        assert page["kvcache_exporter_config_last_reload_successful"] == 0.0
        assert 'kvcache_target_up{target="127.0.0.1:2"}' in page

        config.write_text("targets: [{static: ['127.0.0.1:4']}]\n")
        process.send_signal(signal.SIGHUP)
        wait_until("the reload by signal", lambda: 'kvcache_target_up{target="127.0.0.1:4"}' in scrape(port))
        assert scrape(port)["kvcache_exporter_config_last_reload_successful"] == 1.0
        assert _reloads(log) == 2


def test_a_bad_configuration_ends_with_code_2_and_its_position(tmp_path: Path) -> None:
    config = tmp_path / "kvcache.yaml"
    config.write_text("targets: [{static: ['127.0.0.1:1'], scheem: http}]\n")
    for command in ("check", "serve"):
        ended = subprocess.run(
            [sys.executable, "-m", "kvcache_exporter", command, "--config.file", str(config)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert ended.returncode == 2
        assert f"{config}:1:37: targets[0].scheem: " in ended.stderr


def test_a_state_file_has_one_owner(tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "kvcache.yaml"
    config.write_text(
        f"state: {{path: {tmp_path}/state.sqlite}}\nrequests: [{{name: a, paths: ['{tmp_path}/*.jsonl']}}]\n"
    )
    with running(start_exporter(config, port, tmp_path / "log")):
        wait_until("the first page", lambda: scrape(port))
        second = subprocess.run(
            [sys.executable, "-m", "kvcache_exporter", "serve", "--config.file", str(config),
             "--web.listen-address", "127.0.0.1:0"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    assert second.returncode == 1
    assert "state.sqlite" in second.stderr


RECORDING = Path(__file__).parents[1] / "fixtures" / "recordings" / "vllm-0.32.0"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_target_lived_through_survives_a_restart_of_the_exporter(
    tmp_path: Path, end: signal.Signals
) -> None:
    port, config = free_port(), tmp_path / "kvcache.yaml"
    with closing(Engine(RECORDING)) as engine:
        config.write_text(
            f"scrape: {{interval: 500ms, timeout: 400ms, max_age: 100ms}}\n"
            f"state: {{path: {tmp_path}/state.sqlite}}\n"
            f"targets: [{{static: ['{engine.address}']}}]\n"
        )
        restarts = f'kvcache_target_restarts_total{{target="{engine.address}"}}'
        engine.show("034")
        process = start_exporter(config, port, tmp_path / "log")
        wait_until("the first page", lambda: restarts in scrape(port))
        engine.show("060")
        wait_until("the restart being seen", lambda: scrape(port)[restarts] == 1.0)
        process.send_signal(end)
        process.wait(10)
        engine.show("062")
        with running(start_exporter(config, port, tmp_path / "log")):
            wait_until("the page of the new process", lambda: restarts in scrape(port))
            assert scrape(port)[restarts] == 1.0


_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def test_no_signal_is_lost_between_a_look_and_a_wait(tmp_path: Path) -> None:
    """The main thread waits for them without a handler; all other threads hold them back."""
    port, config = free_port(), tmp_path / "kvcache.yaml"
    config.write_text("targets: [{static: ['127.0.0.1:1']}]\n")
    with running(start_exporter(config, port, tmp_path / "log")) as process:
        wait_until("the first page", lambda: scrape(port))
        threads = {path.name: _masks(path / "status") for path in Path(f"/proc/{process.pid}/task").iterdir()}
    assert threads.pop(str(process.pid))["SigCgt"].isdisjoint({signal.SIGHUP, signal.SIGTERM})
    assert threads
    for thread in threads.values():
        assert thread["SigBlk"] >= {*_SIGNALS}


def _masks(status: Path) -> dict[str, set[int]]:
    fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
    masks = {name: int(fields[name], 16) for name in ("SigBlk", "SigCgt")}
    return {name: {n for n in range(1, 65) if mask >> (n - 1) & 1} for name, mask in masks.items()}


def test_sigterm_ends_it_cleanly_and_soon(tmp_path: Path) -> None:
    """A second one, from somebody in a hurry, changes nothing."""
    port, config = free_port(), tmp_path / "kvcache.yaml"
    config.write_text("targets: [{static: ['127.0.0.1:1']}]\n")
    process = start_exporter(config, port, tmp_path / "log")
    wait_until("the first page", lambda: scrape(port))
    os.kill(process.pid, signal.SIGHUP)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(5) == 0
