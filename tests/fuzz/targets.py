"""One function for each place where foreign bytes come in; a fault is any exception but those that are meant.

To add one, write it, put it into `TARGETS`, and give it a seed in `corpus.py`.
"""

import contextlib
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from kvcache_exporter.config import parse_address
from kvcache_exporter.config.probe_section import parse_allow_entry
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ConfigError, PricesError, ProbeError, RecordError, StateError
from kvcache_exporter.events.ledger import RankLedger
from kvcache_exporter.exposition import exposition
from kvcache_exporter.model import Aggregate, RequestRecord, Signal
from kvcache_exporter.probe import timeout_of
from kvcache_exporter.requests.formats import FORMATS
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.options import FollowOptions, SourceOptions
from kvcache_exporter.requests.otlp.errors import MalformedError, TooManyError
from kvcache_exporter.requests.otlp.messages import Encoding
from kvcache_exporter.requests.otlp.messages import read as read_export
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.prices import load_prices
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.requests.tail import Follower
from kvcache_exporter.scrape.cold import ColdWatch
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.scrape.lifecycle import ColdRule
from kvcache_exporter.settings import read_config
from kvcache_exporter.state import StateStore
from kvcache_exporter.web.auth import BasicAuth
from kvcache_exporter.web.config import load as load_web_config
from kvcache_exporter.web.endpoints import Asset, Endpoints, Request, Response
from kvcache_exporter.web.negotiation import accepts_gzip, prefers_openmetrics

SPLIT = b"\n--8<--\n"
"""Between the parts of an input that has several: two pages, the pieces of a log."""
STATE_KINDS = ("files", "ledger", "decoders", "seen")
_FIELDS = {"prompt_tokens": "usage.prompt_tokens", "cached_tokens": "cached", "status": "status"}
_HEADERS = ("accept", "accept-encoding", "origin", "host", "authorization")
_HASH = "$2b$04$abcdefghijklmnopqrstuuEsDfdBKAYrLEdzMJlMXrZ4iO6D3TVEe"
_FOLDER = Path(tempfile.mkdtemp(prefix="kvcache-fuzz-"))


def _file(name: str, data: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(data)
    return path


def page(data: bytes) -> None:
    """Pages of one target, one after the other: whatever they say, the exposition is sound."""
    collector = TargetCollector("a:1", ENGINES)
    for number, part in enumerate(data.split(SPLIT)[:4]):
        collector.page(part, 1_800_000_000.0 + 15 * number)
    text = exposition(collector.samples)
    assert text.count("\nkvcache_target_up{") + text.startswith("kvcache_target_up{") == 1


def logs(data: bytes) -> None:
    """Lines in one format, chosen by the first byte, with a restart in the middle."""
    form = FORMATS[data[0] % len(FORMATS)] if data else FORMATS[0]
    fields = _FIELDS if form.name == "custom" else {}
    options = DecoderOptions(fields=fields)
    decoder, ledger = form.decoder(options), Ledger("a", FullHit(), models=5, groups=5)
    for part in data[1:].split(SPLIT)[:4]:
        entries = decoder.decode(part.split(b"\n"))
        snapshot = decoder.snapshot()
        decoder = form.decoder(options)
        decoder.restore(snapshot)
        for entry in entries:
            _check_entry(entry)
        ledger.add(entries)
    ledger.add(decoder.flush())
    ledger.tick(1.0)
    assert all(math.isfinite(s.value) for s in ledger.samples() if isinstance(s.value, float))


def _check_entry(entry: object) -> None:
    if isinstance(entry, RequestRecord | Aggregate) and entry.prompt_tokens is not None:
        assert 0 <= (entry.cached_tokens or 0) <= entry.prompt_tokens
    if isinstance(entry, RecordError):
        assert len(str(entry)) < 500


def tail(data: bytes) -> None:
    """A log file, plain or compressed, that holds one content after the other."""
    for name in ("log.jsonl", "log.jsonl.gz"):
        path = _FOLDER / name
        follower = Follower([str(path)], "beginning", {}, FollowOptions(max_line_bytes=1000))
        taken = 0
        for part in data.split(SPLIT)[:4]:
            path.write_bytes(part)
            for chunk in follower.poll(1 << 20):
                taken += sum(map(len, chunk.lines))
            follower.positions()
            follower.committed()
        follower.close()
        path.unlink()
        assert taken <= 1100 * max(1, len(data)), "what is unpacked is bounded"


def otlp(data: bytes) -> None:
    """Bodies of exports, of a signal and in an encoding that the first byte chooses."""
    signal: Signal = "logs" if data[:1] > b"\x7f" else "traces"
    encodings: tuple[Encoding, ...] = ("protobuf", "json")
    for encoding in encodings:
        with contextlib.suppress(MalformedError, TooManyError):
            for item in read_export(signal, encoding, data[1:], ("gen_ai.usage.input_tokens", "model")):
                _check_entry(item)


def events(data: bytes) -> None:
    """Batches of KV events."""
    ledger = RankLedger(limit=1000)
    for part in data.split(SPLIT)[:8]:
        ledger.add(part)
    samples = ledger.samples(("a", "", "", ""))
    assert all(math.isfinite(s.value) for s in samples if isinstance(s.value, float))


def config(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        read_config(_file("kvcache.yaml", data))


def web_config(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        load_web_config(_file("web.yml", data))


def prices(data: bytes) -> None:
    with contextlib.suppress(PricesError):
        load_prices(_file("prices.json", data), None)


def addresses(data: bytes) -> None:
    text = data.decode("latin-1")
    parse_allow_entry(text)
    assert 0 < timeout_of(text, 0.5, 5.0) <= 5.0
    with contextlib.suppress(ValueError):
        address = parse_address(text)
        assert address.host
        assert 1 <= address.port <= 65535


class _NoPages:
    """Pages that hold nothing."""

    def metrics(self, openmetrics: bool) -> bytes:
        return b"# EOF\n" * openmetrics

    def ready(self) -> bool:
        return False

    def reload(self) -> str | None:
        return None

    def config_text(self) -> str:
        return ""

    def target_text(self, _: str) -> str | None:
        return None

    def probe(self, target: str, module: str, timeout: str, *, openmetrics: bool) -> bytes:
        raise ProbeError("forbidden", f"{target} {module} {timeout} {openmetrics}")

    def summary_json(self, _: str | None) -> bytes | None:
        return None

    def page_html(self, _: str | None) -> bytes | None:
        return None

    def asset(self, _: str) -> Asset | None:
        return None

    def max_export(self) -> int:
        return 0

    def export(self, signal: Signal, request: Request) -> Response | None:
        return None


def request(data: bytes) -> None:
    """The head of a request as the protocol library hands it on: lines of a path, a query and headers."""
    lines = [*data.decode("latin-1").split("\n"), "", "", "", ""]
    headers = dict(zip(_HEADERS, lines[2:], strict=False))
    for method in ("GET", "POST"):
        assert Endpoints(_NoPages()).respond(Request(method, lines[0], lines[1], headers)).status < 600
    Request("GET", lines[0], lines[1], headers).argument("target")
    prefers_openmetrics(lines[2])
    accepts_gzip(lines[3])
    assert BasicAuth({"a": _HASH}).known(headers.get("authorization", "")) is not True


def state(data: bytes) -> None:
    """What a state file holds of a source and of a target: any bytes are a StateError or taken."""
    store = StateStore(None)
    for number, part in enumerate(data.split(SPLIT)[:8]):
        key, _, value = part.partition(b"=")
        store.commit({(f"{STATE_KINDS[number % 4]}/a", key.decode("latin-1")): value})
    for form in (FORMATS[len(data) % len(FORMATS)], FORMATS[-1]):
        fields = _FIELDS if form.name == "custom" else {}
        options = SourceOptions(
            "a", (str(_FOLDER / "no.log"),), "end", DecoderOptions(fields=fields), FullHit()
        )
        with contextlib.suppress(StateError):
            source = LogSource(options, form, store)
            source.poll(1.0)
            source.close()
    ColdWatch("a", ColdRule(), Fleet()).restore(data)
    store.close()


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (page, logs, tail, otlp, events, config, web_config, prices, addresses, request, state)
}
