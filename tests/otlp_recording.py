"""Recorded spans as OTLP exports in protobuf and JSON, and the usage log of the same requests."""

import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.outcome import FullHit, classify

FOLDER = Path(__file__).parent / "fixtures/otlp"
VLLM, SGLANG = "vllm-0.32.0", "sglang-0.5.23-a"
FULL_HIT = FullHit()


def exports(name: str) -> list[bytes]:
    """The bodies of exports in JSON, as a collector sends them."""
    return (FOLDER / f"{name}.spans.jsonl").read_bytes().splitlines()


def as_protobuf(export: bytes) -> bytes:
    """The same export; protobuf's own JSON has ids in base64, where OTLP has them in hexadecimal."""
    document = json.loads(export)
    for span in each_span(document):
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = b64encode(bytes.fromhex(span[key])).decode()
    return ParseDict(document, ExportTraceServiceRequest()).SerializeToString()


def each_span(document: Any) -> Iterator[dict[str, Any]]:
    for group in document["resourceSpans"]:
        for scope in group["scopeSpans"]:
            yield from scope["spans"]


def request_spans(name: str) -> list[dict[str, Any]]:
    """Attributes of the spans of requests."""
    spans = [span for export in exports(name) for span in each_span(json.loads(export))]
    found = [{a["key"]: next(iter(a["value"].values())) for a in span["attributes"]} for span in spans]
    return [attributes for attributes in found if "gen_ai.usage.prompt_tokens" in attributes]


def usage_lines() -> list[bytes]:
    """What a gateway logs of the requests of the vLLM recording; no line has a time to first token."""
    return (FOLDER / f"{VLLM}.usage.jsonl").read_bytes().splitlines()


def ttft_by_outcome(choice: int) -> dict[str, list[float]]:
    """The exact answer: of each request that was answered, its outcome and its span's seconds.

    One request asked for two choices, which have a span each; `choice` 0 or 1 says which of them came first.
    """
    ordered = request_spans(VLLM)[:: 1 if choice else -1]
    spans = {attributes["gen_ai.request.id"]: attributes for attributes in ordered}
    found: dict[str, list[float]] = defaultdict(list)
    for line in usage_lines():
        row = json.loads(line)
        if "usage" in row:
            span = spans.get(row["request_id"]) or spans[row["request_id"] + "-0"]
            (record,) = get_format("vllm").decoder(DecoderOptions()).decode([line])
            assert isinstance(record, RequestRecord)
            outcome = classify(*record[:2], record.granule, record.minimum_tokens, FULL_HIT)
            found[outcome].append(float(span["gen_ai.latency.time_to_first_token"]))
    return dict(found)
