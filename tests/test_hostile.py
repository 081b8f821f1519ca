"""Inputs made to exhaust memory or to lie about time: each is bounded and counted, and nothing else suffers.

Memory is measured in a process of its own: what it has at the most, less what Python and the imports take.
"""

import gzip
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.config import Config
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import PricesError, StateError
from kvcache_exporter.jobs import JobMaker
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.prices import load_prices
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.scrape.cold import Saved
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.lifecycle import Life
from kvcache_exporter.state import StateStore
from kvcache_exporter.targets import Target
from kvcache_exporter.windows import MAX_CELLS, MAX_COLUMNS, History

GOOD = (
    b'{"ts":"2026-11-29T10:00:01Z","model":"m","status":200,'
    b'"usage":{"prompt_tokens":2000,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}\n'
)
_PREAMBLE = """
import resource, sys
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.exposition import Renderer
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.state import StateStore

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def read(path):
    options = SourceOptions("s", (path,), "beginning", DecoderOptions(), FullHit())
    source = LogSource(options, get_format("openai_chat"), StateStore(None))
    while source.poll(1.8e9) or source.lag_bytes:
        pass
    return source

before = most()
"""


def mebibytes(script: str, *arguments: object) -> tuple[float, list[str]]:
    """What the script took at the most, and what it printed."""
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            _PREAMBLE + textwrap.dedent(script) + "\nprint(most() - before)",
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    *printed, taken = ended.stdout.splitlines()
    return float(taken), printed


def test_a_page_of_400_000_label_values_is_refused_for_a_few_mebibytes() -> None:
    taken, (up, error) = mebibytes("""
        data = b"".join(b'vllm:prompt_tokens_total{model_name="%d"} 1\\n' % n for n in range(400_000))
        before = most()
        collector = TargetCollector("a", ENGINES)
        collector.page(data, 1.8e9)
        print(collector.up)
        print(collector.last_error)
    """)
    assert (up, error[:10]) == ("False", "too_large:")
    assert taken < 60


def test_label_values_that_change_with_every_page_take_no_more_and_no_more_memory() -> None:
    history = History(3600.0)
    for page in range(60):
        columns = [history.column((page, n)) for n in range(4_000)]
        history.add(15.0 * page, ((column, 1.0) for column in columns))
        assert len(history._columns) <= MAX_COLUMNS + 4_000
        assert sum(len(row) for _, row in history._rows) <= MAX_CELLS + 20 * MAX_COLUMNS
    assert history.generation > 0


def test_many_series_keep_the_windows_exact_with_fewer_rows() -> None:
    history = History(3600.0)
    wide = [history.column(n) for n in range(20_000)]
    for page in range(260):
        history.add(15.0 * page, ((column, 10.0 * page) for column in wide))
        assert len(history._rows) <= MAX_CELLS // len(wide) + 1
    span = history.span(60.0)
    assert span is not None
    assert 60 <= span.seconds <= 120
    assert span._of(wide[7]) == pytest.approx(span.seconds / 15 * 10)
    hour = history.span(3600.0)
    assert hour is not None
    assert hour._of(wide[7]) == pytest.approx(hour.seconds / 15 * 10)


def test_ten_times_the_models_and_groups_in_a_log_take_no_more_memory(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    def write(names: int) -> None:
        with log.open("wb") as file:
            for n in range(names):
                names_in = b'"model":"model-%d","user":"u-%d","route":"r-%d"' % (n, n, n)
                file.write(GOOD.replace(b'"model":"m"', names_in))

    script = """
        source = read(sys.argv[1])
        print(len(source.ledger.tallies), len(source.ledger.models), source.ledger.health.lines)
    """
    write(10_000)
    little, _ = mebibytes(script, log)
    write(100_000)
    much, (counted,) = mebibytes(script, log)
    tallies, models, lines = map(int, counted.split())
    assert (models, lines) == (201, 100_000)
    assert tallies <= 201 * 201
    assert much < little + 25


def test_a_line_of_100_mib_is_counted_once_and_never_held(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with log.open("wb") as file:
        file.write(GOOD)
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + GOOD)
    taken, (failures,) = mebibytes("print(read(sys.argv[1]).ledger.health.failures)", log)
    assert failures == "{'too_long': 1}"
    assert taken < 60


def test_a_compressed_log_that_unpacks_to_256_mebibytes_is_read_in_pieces(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl.gz"
    with gzip.open(log, "wb", compresslevel=1) as file:
        file.write(GOOD)
        for _ in range(256):
            file.write(b"0" * (1 << 20))
        file.write(b"\n" + GOOD)
    taken, (health,) = mebibytes(
        "health = read(sys.argv[1]).ledger.health; print(health.lines, health.failures)", log
    )
    assert health == "3 {'too_long': 1}"
    assert taken < 60


def test_a_record_from_the_future_is_counted_but_no_sign_of_life() -> None:
    ledger = Ledger("s", FullHit())
    ledger.now = 1_800_000_000.0
    ledger.add([RequestRecord(10, 5, timestamp=at) for at in (1_799_999_000.0, 1_800_000_300.0, 4e9)])
    assert ledger.health.newest == 1_800_000_300.0
    (requests,) = [sample.value for sample in ledger.samples() if sample.metric is c.REQUEST_PROMPT_TOKENS]
    assert requests == 30.0


@pytest.mark.parametrize("jump", [-40_000_000.0, -3600.0, -20.0, 3600.0, 40_000_000.0])
def test_when_the_clock_jumps_windows_are_left_out_or_right_but_never_wrong(jump: float) -> None:
    collector = TargetCollector("a", ENGINES)

    def page(number: int) -> bytes:
        return (
            b'vllm:prompt_tokens_total{engine="0",model_name="m"} %d\n'
            b'vllm:prompt_tokens_cached_total{engine="0",model_name="m"} %d\n' % (1000 * number, 250 * number)
        )

    for number in range(1, 60):
        collector.page(page(number), 1_800_000_000.0 + 15 * number + (jump if number >= 30 else 0.0))
        found = [s.value for s in collector.samples if s.metric is c.TOKEN_HIT_RATIO]
        assert all(value == pytest.approx(0.25) for value in found)
        rates = [s.value for s in collector.samples if s.metric is c.PREFILL_SECONDS_PER_1K]
        assert all(isinstance(value, float) and value >= 0 for value in rates)
    shown = {s.labels[-1] for s in collector.samples if s.metric is c.TOKEN_HIT_RATIO}
    assert shown >= {"1m", "5m"}, "both windows are whole again"
    (prompt,) = [s.value for s in collector.samples if s.metric is c.PROMPT_TOKENS]
    assert prompt == 59_000.0


def test_a_clock_that_jumps_makes_no_target_forgotten_that_is_still_there() -> None:
    store = StateStore(None)
    old = msgspec.json.encode(Saved(1.0, Life(), {}))
    store.commit({("targets", name): old for name in ("here", "gone")})
    maker = JobMaker(store)
    maker.wanted([Target("here", "http://here:1/metrics", "auto")], Config())
    assert set(store.load("targets")) == {"here"}


def test_counters_in_the_state_file_that_make_no_sense_are_told() -> None:
    store = StateStore(None)
    store.commit({("ledger/s", "health"): b"\x85"})
    options = SourceOptions("s", ("/nowhere/*",), "end", DecoderOptions(), FullHit())
    with pytest.raises(StateError, match=r"the saved counters of s cannot be read .*; move the file at"):
        LogSource(options, get_format("auto"), store)


def test_prices_nested_without_end_are_told(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_bytes(b"[" * 100_000)
    with pytest.raises(PricesError, match="cannot read prices"):
        load_prices(prices)


def test_no_fault_in_a_reload_ends_the_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "kvcache.yaml"
    config.write_text("targets: [{static: ['a:1']}]\n")
    app = App(config)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kvcache_exporter.settings.load_config", broken)
    assert app.reload() == "unexpected fault (ZeroDivisionError); the exporter's log has the details"
    assert not app.reload_ok
