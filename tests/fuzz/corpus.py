"""Seeds: real inputs from the fixtures, small enough to be varied quickly."""

import base64
import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fuzz.targets import SPLIT, STATE_KINDS
from kvcache_exporter.requests.formats import FORMATS
from kvcache_exporter.requests.formats.base import DecoderOptions, Format
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.state import StateStore

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_DOCS = Path(__file__).parents[2] / "docs"
_MOST_BYTES = 6000


@functools.cache
def seeds(target: str) -> tuple[bytes, ...]:
    """Inputs for one of `targets.TARGETS`."""
    return tuple(globals()[f"_{target}"]())


def _page() -> Iterator[bytes]:
    for path in sorted(_FIXTURES.glob("engines/*/page.prom")):
        lines = [line for line in path.read_bytes().splitlines(keepends=True) if b"_bucket" not in line]
        whole = b"".join(lines)[:_MOST_BYTES]
        yield whole
        yield whole + SPLIT + whole


def _logs() -> Iterator[bytes]:
    for number, form in enumerate(FORMATS):
        for path in sorted((_FIXTURES / "logs").glob(f"{form.name}.*")):
            if "expected" not in path.name:
                yield bytes([number]) + path.read_bytes()[:_MOST_BYTES]


def _tail() -> Iterator[bytes]:
    line = b'{"usage": {"prompt_tokens": 1}}\n'
    yield line * 3
    yield line * 3 + SPLIT + line * 5
    yield gzip.compress(line * 3) + SPLIT + gzip.compress(line * 3) + gzip.compress(line)


def _otlp() -> Iterator[bytes]:
    """Exports in JSON, and the same as protobuf."""
    for line in (_FIXTURES / "logs" / "otlp_traces.jsonl").read_bytes().splitlines()[:5]:
        yield b"t" + line[:_MOST_BYTES]
        yield b"t" + Parse(line, ExportTraceServiceRequest(), ignore_unknown_fields=True).SerializeToString()


def _events() -> Iterator[bytes]:
    for path in sorted(_FIXTURES.glob("events/*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            for _, line in zip(range(4), file, strict=False):
                found = [value for value in json.loads(line).values() if isinstance(value, str)]
                yield base64.b64decode(max(found, key=len) + "==")[:_MOST_BYTES]


def _config() -> Iterator[bytes]:
    yield (_DOCS / "example.yaml").read_bytes()
    for path in sorted(_FIXTURES.glob("config/bad/*.yaml")):
        yield path.read_bytes()[:_MOST_BYTES]


def _web_config() -> Iterator[bytes]:
    for path in sorted((_FIXTURES / "web").rglob("*.y*ml")):
        yield path.read_bytes()[:_MOST_BYTES]


def _prices() -> Iterator[bytes]:
    yield (_DOCS / "prices-example.json").read_bytes()[:_MOST_BYTES]


def _addresses() -> Iterator[bytes]:
    yield from (
        b"10.0.0.1:8000",
        b"[::1]:80",
        b"http://a:1/metrics",
        b"*.llm.svc:80",
        b"10.0.0.0/8:1",
        b"9.5",
    )


def _request() -> Iterator[bytes]:
    yield b"/metrics\n\napplication/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\ngzip;q=0.5\n\na:1\n"
    yield b"/probe\ntarget=a%3A1&module=m\n\n\nhttp://a:1\na:1\nBasic YTpi"


def _state() -> Iterator[bytes]:
    """What sources of several formats really keep."""
    for form in FORMATS:
        for path in sorted((_FIXTURES / "logs").glob(f"{form.name}.*")):
            if "expected" not in path.name:
                yield _kept(form, path)


def _kept(form: Format, path: Path) -> bytes:
    store = StateStore(None)
    source = LogSource(
        SourceOptions("a", (str(path),), "beginning", DecoderOptions(), FullHit()), form, store
    )
    source.poll(1.0)
    source.close()
    held = [store.load(f"{kind}/a") for kind in STATE_KINDS]
    store.close()
    first = [next(iter(kind.items()), ("", b"")) for kind in held]
    rows = [f"{key}=".encode("latin-1", "replace") + value[:_MOST_BYTES] for key, value in first]
    return SPLIT.join(rows)
