"""Makes the recording that `kvcache-exporter demo` plays, from two recordings of real engines.

python tests/make_demo_recording.py VLLM_FOLDER SGLANG_FOLDER exporter/kvcache_exporter/demo/recording.zip
"""

import base64
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from thin_recording import thin_page

_EPOCH = (1980, 1, 1, 0, 0, 0)


def main(vllm: Path, sglang: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, folder in (("vllm", vllm), ("sglang", sglang)):
            for page in _pages(folder):
                _write(archive, f"{name}/{page.name}", thin_page(page.read_bytes(), keep_histograms=True))
        _write(archive, "vllm/gateway.jsonl", _lines(_gateway_records(vllm)))
        _write(archive, "vllm/kv-events.msgpack", msgspec.msgpack.encode(list(_events(vllm))))
        _write(archive, "sglang/request-metrics.jsonl", _lines(_export_records(sglang)))


def _pages(folder: Path) -> list[Path]:
    """All pages but the one-request probes, which no dashboard would show."""
    named = [p for p in sorted(folder.glob("*.prom")) if re.search(r"_\d{9,}\.prom$", p.name)]
    return [p for p in named if "_probe" not in p.name]


def _gateway_records(folder: Path) -> Iterator[dict[str, Any]]:
    """What a gateway in front of the engine would have logged: the client's own view of each request."""
    for line in (folder / "requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        if request["phase"] == "probe" or not request["usage"]:
            continue
        yield {
            "ts": datetime.fromtimestamp(request["ts"], UTC).isoformat(timespec="milliseconds"),
            "request_id": request["request_id"],
            "provider": "vllm",
            "model": request["model"],
            "route": request["phase"].removesuffix("2").removesuffix("-restart").removesuffix("-again"),
            "status": request["status"],
            "stream": request["stream"],
            "ttft_ms": request["ttft_s"] and round(1000 * request["ttft_s"], 3),
            "latency_ms": round(1000 * request["e2e_s"], 3),
            "usage": request["usage"],
        }


def _export_records(folder: Path) -> Iterator[dict[str, Any]]:
    """The engine's own request-metrics file without its sampling parameters."""
    for path in sorted((folder / "export").iterdir()):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            stream = json.loads(record["request_parameters"]).get("stream")
            yield {**record, "request_parameters": json.dumps({"stream": stream})}


def _events(folder: Path) -> Iterator[tuple[float, int, bytes]]:
    """Batches of KV events with zeros for the token ids, which nobody reads."""
    for line in (folder / "kv_events.msgpack.b64").read_text().splitlines():
        frame = json.loads(line)
        batch = msgspec.msgpack.decode(base64.b64decode(frame["payload_b64"]))
        for event in batch[1]:
            if "token_ids" in event:
                event["token_ids"] = [0] * len(event["token_ids"])
        yield frame["recv_ts"], frame["seq"], msgspec.msgpack.encode(batch)


def _lines(records: Iterator[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
