"""A log source: what is published is committed, what is committed survives, faults are counted."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import StateError
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.state import StateStore

LINE = (
    b'{"ts":"2026-11-29T10:00:01Z","model":"m","status":200,'
    b'"usage":{"prompt_tokens":2000,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}\n'
)


def options(path: Path) -> SourceOptions:
    return SourceOptions("s", (str(path),), "beginning", DecoderOptions(), FullHit())


def source(path: Path, store: StateStore) -> LogSource:
    return LogSource(options(path), get_format("openai_chat"), store)


def requests(found: LogSource) -> str:
    return (
        "".join(found.block[c.REQUESTS].text.splitlines(keepends=True)) if c.REQUESTS in found.block else ""
    )


def test_nothing_is_published_before_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = tmp_path / "a.jsonl", StateStore(tmp_path / "state.sqlite")
    path.write_bytes(LINE)
    reader = source(path, store)

    def full_disk(*_: object) -> None:
        raise StateError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(store, "commit", full_disk)
        with pytest.raises(StateError):
            reader.poll(0.0)
    assert requests(reader) == ""
    reader.poll(1.0)
    assert 'outcome="miss"} 1.0' in requests(reader)
    store.close()


def test_a_new_process_publishes_the_committed_counters_before_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINE * 3)
    store = StateStore(tmp_path / "state.sqlite")
    source(path, store).poll(0.0)
    store.close()
    path.write_bytes(path.read_bytes() + LINE)
    store = StateStore(tmp_path / "state.sqlite")
    reader = source(path, store)
    assert 'outcome="miss"} 3.0' in requests(reader)
    reader.poll(0.0)
    assert 'outcome="miss"} 4.0' in requests(reader)
    store.close()


def test_windows_hold_the_lines_of_the_first_poll_and_not_those_of_the_process_before(tmp_path: Path) -> None:
    """As do the outcomes and costs of the summary: the rates next to them are of the same requests."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINE * 3)
    store = StateStore(tmp_path / "state.sqlite")
    first = source(path, store)
    first.poll(0.0)
    first.poll(1.0)
    assert [found.known for found in first.ledger.recent["5m"].values()] == [3]
    path.write_bytes(path.read_bytes() + LINE * 2)
    second = source(path, store)
    second.poll(2.0)
    second.poll(3.0)
    assert [found.known for found in second.ledger.recent["5m"].values()] == [2]
    assert sum(totals.outcomes["miss"] for totals in second.ledger.models.values()) == 2
    store.close()


def test_half_read_records_survive_a_restart(tmp_path: Path) -> None:
    """An Anthropic stream whose start was read before the restart and whose end after it is one request."""
    path = tmp_path / "a.jsonl"
    start = (
        b'{"request_id":"r","type":"message_start","message":{"id":"m1","model":"claude-sonnet-5-5",'
        b'"usage":{"input_tokens":10,"cache_read_input_tokens":9000,"output_tokens":1}}}\n'
    )
    end = (
        b'{"request_id":"r","type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"output_tokens":50}}\n'
    )
    path.write_bytes(start)
    store = StateStore(tmp_path / "state.sqlite")
    LogSource(options(path), get_format("anthropic_stream"), store).poll(0.0)
    store.close()
    path.write_bytes(start + end)
    store = StateStore(tmp_path / "state.sqlite")
    reader = LogSource(options(path), get_format("anthropic_stream"), store)
    assert requests(reader) == ""
    reader.poll(0.0)
    assert 'outcome="full"} 1.0' in requests(reader)
    store.close()


def test_a_fault_in_a_decoder_is_counted_line_by_line_and_the_next_lines_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = tmp_path / "a.jsonl", StateStore(None)
    path.write_bytes(LINE * 2)
    reader = source(path, store)
    real = reader._books._decoder

    class Faulty:
        def decode(self, lines: Sequence[bytes]) -> list[Entry]:
            raise ZeroDivisionError

    def broken(_: str) -> Decoder:
        return Faulty()  # type: ignore[return-value]

    monkeypatch.setattr(reader._books, "_decoder", broken)
    reader.poll(0.0)
    assert reader.ledger.health.failures == {"internal": 2}
    monkeypatch.setattr(reader._books, "_decoder", real)
    path.write_bytes(LINE * 3)
    reader.poll(1.0)
    assert 'outcome="miss"} 1.0' in requests(reader)
