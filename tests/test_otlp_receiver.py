"""OTLP/HTTP at the exporter's own port: kinds of bodies, refusals, back-pressure, reload; real sockets."""

import gzip
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest
import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from processes import wait_until

from kvcache_exporter.app import App
from kvcache_exporter.errors import StateError
from kvcache_exporter.pages import ExporterPages
from kvcache_exporter.requests.otlp import receiver as module
from kvcache_exporter.web import WebConfig, WebServer, web_server
from otlp_recording import SGLANG, as_protobuf, exports

BODY = next(export for export in exports(SGLANG) if b"gen_ai.usage" in export)
PROTOBUF = "application/x-protobuf"
REASONS: tuple[tuple[int, str, dict[str, str], bytes], ...] = (
    (415, "media_type", {"Content-Type": "text/plain"}, b"hello"),
    (415, "encoding", {"Content-Encoding": "br"}, b"hello"),
    (400, "malformed", {}, b"\xff\xff\xff"),
    (400, "malformed", {"Content-Encoding": "gzip"}, b"no gzip"),
    (400, "malformed", {"Content-Encoding": "gzip"}, gzip.compress(as_protobuf(BODY))[:-9]),
    (400, "malformed", {"Content-Encoding": "gzip"}, gzip.compress(as_protobuf(BODY)) + b"more"),
    (413, "too_large", {}, b"x" * ((1 << 20) + 1)),
    (413, "too_large", {"Content-Encoding": "gzip"}, gzip.compress(b"\0" * (50 << 20))),
)


class Running:
    def __init__(self, app: App, server: WebServer) -> None:
        self.app, self.url = app, server.url

    def send(self, body: bytes, signal: str = "traces", **headers: str) -> requests.Response:
        kind = {"Content-Type": PROTOBUF} | {name.replace("_", "-"): value for name, value in headers.items()}
        return requests.post(f"{self.url}/v1/{signal}", data=body, headers=kind, timeout=20)

    def value(self, series: str) -> float:
        page = requests.get(f"{self.url}/metrics", timeout=10).text
        found = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(series)]
        return sum(map(float, found))


@contextmanager
def serving(config: Path, web_config: WebConfig | None = None) -> Iterator[Running]:
    app = App(config)
    app.start()
    try:
        with web_server("127.0.0.1:0", ExporterPages(app), web_config) as server:
            yield Running(app, server)
    finally:
        app.stop()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    config = tmp_path / "kvcache.yaml"
    config.write_text("requests: [{name: traces, otlp: {max_body_bytes: 1MiB}}]\n")
    with serving(config) as found:
        yield found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [PROTOBUF, "application/json; charset=utf-8"])
def test_either_encoding_packed_or_not_is_counted_and_answered_in_kind(
    running: Running, kind: str, packed: bool
) -> None:
    body = as_protobuf(BODY) if kind == PROTOBUF else BODY
    headers = {"Content_Type": kind} | ({"Content_Encoding": "gzip"} if packed else {})
    answer = running.send(gzip.compress(body) if packed else body, **headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, kind.partition(";")[0])
    assert answer.content == (b"" if kind == PROTOBUF else b"{}")
    expected = BODY.count(b'"gen_ai.usage.prompt_tokens"')
    wait_until("the page", lambda: running.value('kvcache_requests_total{source="traces"') == expected)
    assert running.value('kvcache_otlp_received_total{source="traces",signal="traces"}') == BODY.count(
        b'"spanId"'
    )


def test_what_cannot_be_used_is_refused_with_its_reason_and_counted(running: Running) -> None:
    for status, reason, headers, body in REASONS:
        answer = running.send(body, **{name.replace("-", "_"): value for name, value in headers.items()})
        assert answer.status_code == status, (reason, answer.content)
        assert answer.headers["Content-Type"] == PROTOBUF
        assert answer.content[0] == 0x12, "a google.rpc.Status with a message"
        assert "Retry-After" not in answer.headers
    answer = running.send(b"{", Content_Type="application/json")
    assert (answer.status_code, "no export of traces in json" in answer.json()["message"]) == (400, True)
    wait_until("the page", lambda: running.value("kvcache_otlp_refused_total") == len(REASONS) + 1)
    for reason in {reason for _, reason, *_ in REASONS}:
        expected = sum(other == reason for _, other, *_ in REASONS) + (reason == "malformed")
        assert running.value(f'kvcache_otlp_refused_total{{source="traces",reason="{reason}"}}') == expected
    assert running.value("kvcache_requests_total") == 0


def test_items_that_cannot_be_counted_are_told_in_the_partial_success(running: Running) -> None:
    broken = json.loads(BODY)
    span = next(
        span
        for scope in broken["resourceSpans"][0]["scopeSpans"]
        for span in scope["spans"]
        if any(pair["key"] == "gen_ai.usage.prompt_tokens" for pair in span["attributes"])
    )
    for pair in span["attributes"]:
        if pair["key"] == "gen_ai.usage.prompt_tokens":
            pair["value"]["intValue"] = "-5"
    answer = running.send(json.dumps(broken).encode(), Content_Type="application/json")
    assert answer.status_code == 200
    assert answer.json() == {
        "partialSuccess": {"rejectedSpans": "1", "errorMessage": "not counted: invalid 1"}
    }
    told = ExportTraceServiceResponse.FromString(
        running.send(as_protobuf(json.dumps(broken).encode())).content
    )
    assert told.partial_success.rejected_spans == 1


def test_under_pressure_senders_are_told_to_come_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.3)
    with running.app._requests.turn:
        answers: list[requests.Response] = []
        senders = [
            threading.Thread(target=lambda: answers.append(running.send(as_protobuf(BODY))))
            for _ in range(module.AT_A_TIME + 4)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["Retry-After"] for answer in answers} == {"2"}
    assert running.send(as_protobuf(BODY)).status_code == 200


def test_the_sdk_repeats_what_was_refused_and_it_counts_once(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 1)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{running.url}/v1/traces")))
    with provider.get_tracer("engine").start_as_current_span("llm_request") as span:
        span.set_attribute("gen_ai.usage.prompt_tokens", 100)
    with running.app._requests.turn:
        flushing = threading.Thread(target=provider.force_flush)
        flushing.start()
        source = running.app._requests.otlp()
        wait_until("a refusal", lambda: source and source._refusals["busy"])
    flushing.join()
    provider.shutdown()
    wait_until("the page", lambda: running.value('kvcache_requests_total{source="traces"') == 1)
    assert running.value('kvcache_log_skipped_total{source="traces",reason="duplicate"}') == 0


def test_a_full_disk_is_no_success(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise StateError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(running.app._store, "commit", full_disk)
        answer = running.send(as_protobuf(BODY))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert b"no space left" in answer.content
    assert running.send(as_protobuf(BODY)).status_code == 200
    expected = BODY.count(b'"gen_ai.usage.prompt_tokens"')
    wait_until("the page", lambda: running.value('kvcache_requests_total{source="traces"') == expected)


def test_with_basic_authentication_nothing_is_taken_without_the_password(tmp_path: Path) -> None:
    config, web = tmp_path / "kvcache.yaml", tmp_path / "web.yml"
    config.write_text("requests: [{name: traces, otlp: {}}]\n")
    web.write_text(f"basic_auth_users: {{ann: '{bcrypt.hashpw(b'sesame', bcrypt.gensalt(4)).decode()}'}}\n")
    with serving(config, WebConfig(web)) as found:
        assert found.send(as_protobuf(BODY)).status_code == 401
        right = "Basic " + b64encode(b"ann:sesame").decode()
        assert found.send(as_protobuf(BODY), Authorization=right).status_code == 200
        answer = found.send(as_protobuf(BODY), Authorization=right, Content_Type="application/json")
        assert answer.status_code == 400


def test_a_reload_opens_and_closes_the_receiver(running: Running) -> None:
    assert running.send(as_protobuf(BODY)).status_code == 200
    running.app.path.write_text("events: [{target: a, endpoint: 'tcp://127.0.0.1:9'}]\n")
    assert running.app.reload() is None
    answer = running.send(as_protobuf(BODY))
    assert (answer.status_code, b"docs/otlp.md" in answer.content) == (404, True)
    running.app.path.write_text("requests: [{name: traces, otlp: {}}]\n")
    assert running.app.reload() is None
    assert running.send(as_protobuf(BODY)).status_code == 200
    wait_until(
        "the page", lambda: running.value('kvcache_log_skipped_total{source="traces",reason="duplicate"}')
    )


def test_of_several_exporters_one_has_the_log_and_the_spans_joined_to_it(tmp_path: Path) -> None:
    """Whatever the names: apart, neither half would ever meet the other."""
    config = tmp_path / "kvcache.yaml"
    for name in ("a", "b", "c", "d"):
        config.write_text(
            f"requests: [{{name: log, paths: [x]}}, {{name: {name}, otlp: {{join: log}}}}]\n"
            "shard: {count: 2}\n"
        )
        held = []
        for index in (0, 1):
            app = App(config, index)
            app.start()
            held.append([source.name for source in app.sources])
            assert (app.receiver is None) == (held[-1] == [])
            app.stop()
        assert sorted(held) == [[], ["log", name]]
