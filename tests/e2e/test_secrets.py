"""No secret, prompt or answer comes out: markers stand in every input and are looked for in every output."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
from processes import Engine, free_port, running, scrape, wait_until

from event_publisher import Publisher
from kafka_cluster import cluster
from kvcache_exporter.requests.formats import FORMATS

pytestmark = pytest.mark.e2e

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAGE = (FIXTURES / "engines/vllm-0.32.0/page.prom").read_bytes()
MARK = "PLANTED"
TEXT = f"{MARK}-prompt the quick brown fox"
"""Where programs put prompts, answers and credentials; never in a field that is meant as a label."""
PLANTS: dict[str, Any] = {
    "prompt": TEXT,
    "text": TEXT,
    "content": TEXT,
    "messages": [{"role": "user", "content": TEXT}],
    "choices": [{"message": {"role": "assistant", "content": TEXT}}],
    "completion": TEXT,
    "api_key": f"sk-{MARK}-key",
    "authorization": f"Bearer {MARK}-token",
    "sasl_password": f"{MARK}-sasl",
    "token_ids": [f"{MARK}-ids"],
}


def planted(value: Any, *, everywhere: bool) -> Any:
    """A log entry with plants at its top, or in every mapping inside it."""
    if not isinstance(value, dict):
        return [planted(item, everywhere=everywhere) for item in value] if isinstance(value, list) else value
    inner = {key: planted(item, everywhere=True) if everywhere else item for key, item in value.items()}
    return {**PLANTS, **inner}


def lines_of(path: Path) -> Iterator[bytes]:
    """The fixture's lines, each as it is with plants at the top, with plants everywhere, and broken."""
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            yield line + f" {TEXT}".encode()
            continue
        yield line
        for everywhere in (False, True):
            found = json.dumps(planted(entry, everywhere=everywhere)).encode()
            yield found
        yield found[: len(found) - 3]
        yield b"\xff" + found


def write_logs(folder: Path) -> dict[str, Path]:
    """A log by format, for all formats that have a fixture."""
    written = {}
    for form in FORMATS:
        for path in (FIXTURES / "logs").glob(f"{form.name}.*"):
            if "expected" not in path.name and path.suffix in (".jsonl", ".log"):
                written[form.name] = folder / path.name
                written[form.name].write_bytes(b"\n".join(lines_of(path)) + b"\n")
    return written


class Leaky(BaseHTTPRequestHandler):
    """A target whose every answer is an error that repeats the credentials it was given."""

    def do_GET(self) -> None:
        said = f"{MARK}-body {self.headers['Authorization']} {self.path}"
        redirects = self.path.startswith("/elsewhere")
        self.send_response(302 if redirects else 500, said.partition(" ")[0])
        if redirects:
            self.send_header("Location", f"http://{MARK}-user:{MARK}-password@127.0.0.1:1/x?{MARK}-query")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def leaky() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Leaky)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def kafka_sources(broker: str, leaky: str) -> str:
    """One that reads messages with plants, one whose password goes to something that is no broker."""
    sasl = "{mechanism: PLAIN, username: me, password_file: sasl}"
    security = f"{{protocol: sasl_plaintext, sasl: {sasl}}}"
    return (
        f"  - {{name: fleet, format: openai_chat, kafka: {{brokers: ['{broker}'], topic: usage, group: g, "
        "start_at: beginning}}\n"
        f"  - {{name: locked, format: auto, kafka: {{brokers: ['{leaky}'], topic: usage, group: g, "
        f"security: {security}}}}}\n"
    )


def configure(
    folder: Path, logs: dict[str, Path], engine: str, leaky: str, *, events: int, broker: str
) -> Path:
    (folder / "token").write_text(f"{MARK}-bearer")
    (folder / "password").write_text(f"{MARK}-basic")
    (folder / "sasl").write_text(f"{MARK}-sasl-file")
    found = [
        {"targets": [leaky], "labels": {"__param_key": f"{MARK}-parameter", "__metrics_path__": "/elsewhere"}}
    ]
    (folder / "targets.json").write_text(json.dumps(found))
    sources = "".join(
        f"  - {{name: {name}, format: {name}, start_at: beginning, paths: ['{path}']}}\n"
        for name, path in logs.items()
        if name != "custom"
    )
    config = folder / "kvcache.yaml"
    config.write_text(
        "scrape: {interval: 1s, timeout: 900ms}\n"
        f"state: {{path: {folder}/state.sqlite}}\n"
        "targets:\n"
        f"  - {{static: ['{engine}'], bearer_token_file: token}}\n"
        f"  - {{static: ['localhost:{leaky.rpartition(':')[2]}'],"
        " basic_auth: {username: me, password_file: password}}\n"
        "  - {file: {path: targets.json}, bearer_token_file: token}\n"
        f"probe: {{modules: [{{name: m, allow: ['{leaky}'], bearer_token_file: token}}]}}\n"
        f"events: [{{target: e, endpoint: 'tcp://127.0.0.1:{events}'}}]\n"
        f"requests:\n{sources}{kafka_sources(broker, leaky)}"
        "  - {name: spans, otlp: {}}\n"
    )
    return config


def publish(publisher: Publisher) -> None:
    stored = {"type": "BlockStored", "block_hashes": [1, 2], "token_ids": [TEXT, 5], "lora_name": TEXT}
    publisher.publish(stored, {"type": TEXT, "block_hashes": [TEXT]})
    publisher.publish(["BlockStored", [3], None, [TEXT], 16, None, None, TEXT, [[TEXT]]])
    publisher.pass_on(TEXT.encode(), sent=True)


def export(port: int) -> None:
    """Spans, sound and broken, with prompts in attributes, events and names."""
    spans = planted(
        json.loads((FIXTURES / "logs/otlp_traces.jsonl").read_bytes().splitlines()[0]), everywhere=True
    )
    for said in (json.dumps(spans), json.dumps(spans)[:-9], TEXT):
        headers = {"Content-Type": "application/json", "X-Planted": TEXT}
        answer = requests.post(f"http://127.0.0.1:{port}/v1/traces", said, headers=headers, timeout=10)
        assert MARK not in answer.text
        assert answer.status_code in (200, 400)


def pages(port: int, targets: list[str], probe: str) -> Iterator[tuple[str, str]]:
    paths = ["/metrics", "/", "/api/v1/summary", "/config", "/-/ready", f"/probe?target={probe}"]
    for path in (*paths, *(f"/debug/target?name={target}" for target in targets)):
        yield path, requests.get(f"http://127.0.0.1:{port}{path}", timeout=10).text
    wanted = {"Accept": "application/openmetrics-text;version=1.0.0"}
    yield "OpenMetrics", requests.get(f"http://127.0.0.1:{port}/metrics", headers=wanted, timeout=10).text


def test_nothing_planted_comes_out_of_the_running_exporter(tmp_path: Path, leaky: str) -> None:
    logs, port, events = write_logs(tmp_path), free_port(), free_port()
    assert len(logs) > 35
    with ExitStack() as stack:
        engine = stack.enter_context(closing(Engine(Path())))
        help_text = (
            f'# HELP vllm:secret {TEXT}\nvllm:secret{{prompt="{TEXT}"}} 1\nprompts{{text="{TEXT}"}} 1\n'
        )
        engine.page = help_text.encode() + PAGE
        publisher = stack.enter_context(Publisher(events))
        kafka = stack.enter_context(cluster())
        for line in lines_of(FIXTURES / "logs/openai_chat.jsonl"):
            kafka.send(line)
        kafka.flush()
        config = configure(tmp_path, logs, engine.address, leaky, events=events, broker=kafka.broker)
        log = tmp_path / "exporter.log"
        command = [sys.executable, "-m", "kvcache_exporter", "serve", "--config.file", str(config)]
        more = ["--web.listen-address", f"127.0.0.1:{port}", "--log.level", "debug"]
        out = stack.enter_context(log.open("ab"))
        stack.enter_context(running(subprocess.Popen([*command, *more], stdout=out, stderr=out)))
        publisher.subscribed()
        publish(publisher)
        wait_until("all logs being read", lambda: _settled(scrape(port)), 60)
        export(port)
        unreadable = 'kvcache_events_total{target="e",event="unreadable"}'
        wait_until("the events", lambda: scrape(port).get(unreadable))
        fleet = 'kvcache_requests_total{source="fleet"'
        wait_until("the messages", lambda: any(v for s, v in scrape(port).items() if s.startswith(fleet)), 60)
        wait_until("a broker's error", lambda: _sum(scrape(port), "log_broker_errors_total"), 60)
        wait_until("failures of both targets", lambda: _sum(scrape(port), "target_scrape_failures") >= 2)
        targets = [engine.address, leaky, f"localhost:{leaky.rpartition(':')[2]}"]
        found = [*pages(port, targets, leaky), ("the log", log.read_text())]
        page = scrape(port)
    assert _sum(page, "requests_total") > 100, "plants are read, too"
    assert _sum(page, "log_parse_failures_total") > 100
    found += [(path.name, path.read_bytes().decode("latin-1")) for path in tmp_path.glob("state.sqlite*")]
    leaks = {where: text[max(0, text.index(MARK) - 150) :][:300] for where, text in found if MARK in text}
    assert leaks == {}


def _sum(page: dict[str, float], name: str) -> float:
    return sum(value for series, value in page.items() if series.startswith(f"kvcache_{name}"))


def _settled(page: dict[str, float]) -> bool:
    return _sum(page, "log_lines_total") > 500 and _sum(page, "log_lag_bytes") == 0


@pytest.mark.parametrize("command", [["records"], ["records", "--json"], ["report"], ["report", "--json"]])
def test_nothing_planted_comes_out_of_a_command_that_reads_logs(tmp_path: Path, command: list[str]) -> None:
    """One process for a mixed log of all formats, and so of all kinds of failures."""
    logs = write_logs(tmp_path)
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b"".join(path.read_bytes() for path in logs.values()))
    ended = _run(*command, str(mixed))
    assert ended.returncode in (0, 1)
    assert len(ended.stdout) > 200
    assert MARK not in ended.stdout + ended.stderr


def test_nothing_planted_comes_out_of_check_inspect_and_replay(tmp_path: Path, leaky: str) -> None:
    config = configure(tmp_path, {}, "127.0.0.1:1", leaky, events=1, broker="127.0.0.1:1")
    bad = tmp_path / "bad.yaml"
    bad.write_text(config.read_text() + f"  - {{bearer_token: {MARK}-inline, password: {MARK}-inline}}\n")
    recording = tmp_path / "recording"
    recording.mkdir()
    (recording / "000_1800000000.prom").write_bytes(f"# HELP x {TEXT}\n".encode() + PAGE)
    (tmp_path / "page.prom").write_bytes(PAGE + f'vllm:secret{{prompt="{TEXT}"}} 1\n'.encode())
    for command in (
        ["check", "--config.file", str(bad)],
        ["inspect", f"http://{MARK}-user:{MARK}-password@{leaky}/metrics?{MARK}"],
        ["inspect", f"http://{leaky}/elsewhere"],
        ["inspect", str(tmp_path / "page.prom")],
        ["replay", str(recording)],
        ["replay", str(recording), "--json"],
    ):
        ended = _run(*command)
        assert ended.stdout + ended.stderr, command
        assert MARK not in ended.stdout + ended.stderr, command


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kvcache_exporter", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
