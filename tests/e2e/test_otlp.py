"""OTLP as its senders meet it: OpenTelemetry's own SDK and exporter against a running exporter."""

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from processes import free_port, running, scrape, start_exporter, wait_until

from otlp_recording import VLLM, as_protobuf, exports, request_spans, ttft_by_outcome, usage_lines

pytestmark = pytest.mark.e2e

JOINED = """
state: {path: state.sqlite}
requests:
  - {name: usage, paths: [usage.jsonl], format: vllm, start_at: beginning}
  - {name: traces, otlp: {join: usage, join_window: WINDOW}}
"""


@contextmanager
def tracing(port: int, compression: Compression) -> Iterator[TracerProvider]:
    """The SDK as an engine uses it."""
    sender = OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces", compression=compression)
    provider = TracerProvider(resource=Resource({"service.name": "chat-gateway"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(sender))
    try:
        yield provider
    finally:
        provider.shutdown()


@pytest.mark.parametrize("compression", [Compression.Gzip, Compression.NoCompression])
def test_spans_of_the_opentelemetry_sdk_are_requests(
    tmp_path: Path, compression: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    config, port = tmp_path / "kvcache.yaml", free_port()
    config.write_text("requests: [{name: traces, otlp: {}}]\n")
    with running(start_exporter(config, port, tmp_path / "log")), caplog.at_level(logging.WARNING):
        wait_until("the exporter", lambda: scrape(port))
        with tracing(port, compression) as provider:
            tracer = provider.get_tracer("gateway")
            for number in range(300):
                with tracer.start_as_current_span("chat llama") as span:
                    span.set_attribute("gen_ai.operation.name", "chat")
                    span.set_attribute("gen_ai.provider.name", "vllm")
                    span.set_attribute("gen_ai.request.model", "llama")
                    span.set_attribute("gen_ai.usage.input_tokens", 2000)
                    span.set_attribute("gen_ai.usage.cache_read.input_tokens", 1984 if number % 3 else 0)
                    span.set_attribute("gen_ai.response.time_to_first_chunk", 0.04 if number % 3 else 0.4)
                    span.set_attribute("gen_ai.input.messages", "SECRET PROMPT")
                    with tracer.start_as_current_span("GET /tool"):
                        pass
            provider.force_flush()
        labels = 'source="traces",provider="vllm",model_name="llama",group="chat-gateway"'
        requests_of = f"kvcache_requests_total{{{labels},outcome="
        wait_until("the page", lambda: scrape(port).get(requests_of + '"full"}'))
        page = scrape(port)
        assert (page[requests_of + '"full"}'], page[requests_of + '"miss"}']) == (200, 100)
        ttft = f"kvcache_request_time_to_first_token_seconds_sum{{{labels},outcome="
        assert page[ttft + '"full"}'] == pytest.approx(8.0)
        assert page[ttft + '"miss"}'] == pytest.approx(40.0)
        assert page['kvcache_log_skipped_total{source="traces",reason="not_a_request"}'] == 300
        summary = requests.get(f"http://127.0.0.1:{port}/api/v1/summary", timeout=5).json()
        assert [log["source"] for log in summary["data_quality"]["logs"]["shown"]] == ["traces"]
        everything = requests.get(f"http://127.0.0.1:{port}/", timeout=5).text + json.dumps(summary)
        assert "SECRET" not in everything + (tmp_path / "log").read_text()
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]


def _send(port: int, bodies: list[bytes]) -> None:
    for body in bodies:
        answer = requests.post(
            f"http://127.0.0.1:{port}/v1/traces",
            data=body,
            headers={"Content-Type": "application/x-protobuf"},
            timeout=10,
        )
        assert answer.status_code == 200, answer.content


def _joined(page: dict[str, float], result: str) -> float:
    return page.get(f'kvcache_join_requests_total{{source="usage",result="{result}"}}', 0.0)


def test_a_vllm_recording_is_joined_across_kill_9(tmp_path: Path) -> None:
    """Spans before and after their log lines, killed between: what was acknowledged counts once."""
    config, port = tmp_path / "kvcache.yaml", free_port()
    config.write_text(JOINED.replace("WINDOW", "10m"))
    bodies, lines = [as_protobuf(export) for export in exports(VLLM)], usage_lines()
    half = len(bodies) // 2
    with running(start_exporter(config, port, tmp_path / "log")) as process:
        wait_until("the exporter", lambda: scrape(port))
        _send(port, bodies[:half])
        with (tmp_path / "usage.jsonl").open("wb") as log:
            log.writelines(line + b"\n" for line in lines[: len(lines) // 3])
        wait_until("joined", lambda: _joined(scrape(port), "joined") > 50)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    # Soon over now, so that what has no other half shows.
    config.write_text(JOINED.replace("WINDOW", "3s"))
    with (tmp_path / "usage.jsonl").open("ab") as log:
        log.writelines(line + b"\n" for line in lines[len(lines) // 3 :])
    with running(start_exporter(config, port, tmp_path / "log")):
        wait_until("the exporter", lambda: scrape(port))
        _send(port, bodies[half - 3 :])
        _send(port, bodies[:5])
        page = wait_until(
            "all counted", lambda: page if _joined(page := scrape(port), "span_only") == 2 else None, 30
        )
    outcomes = {name: len(found) for name, found in ttft_by_outcome(0).items()}
    counted = {
        name: sum(
            v for k, v in page.items() if k.startswith("kvcache_requests_total{") and f'outcome="{name}"' in k
        )
        for name in (*outcomes, "unknown")
    }
    assert counted == {**outcomes, "unknown": 2}
    assert _joined(page, "joined") == 348
    assert _joined(page, "usage_only") == 0
    assert page['kvcache_join_waiting{source="usage",side="span"}'] == 0
    times = sum(
        v for k, v in page.items() if k.startswith("kvcache_request_time_to_first_token_seconds_count{")
    )
    assert times == 350 == len({s["gen_ai.request.id"] for s in request_spans(VLLM)}) - 1
