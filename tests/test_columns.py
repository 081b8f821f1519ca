"""Requests in columns count exactly as the records of the same lines do, whatever the lines hold."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.model import RequestColumns, RequestRecord
from kvcache_exporter.requests.columns import in_columns
from kvcache_exporter.requests.formats import FORMATS, get_format
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry, Format
from kvcache_exporter.requests.formats.envelope import EnvelopeFormat
from kvcache_exporter.requests.formats.rows import RowFormat
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.prices import load_prices
from test_formats import sample_lines
from test_formats_properties import JSON, VALUES, every_format, make

LOGS = Path(__file__).parent / "fixtures" / "logs"
PRICES = load_prices(Path(__file__).parents[1] / "docs" / "prices-example.json", date(2026, 11, 29))
BY_COLUMNS = [known.name for known in FORMATS if isinstance(known, EnvelopeFormat | RowFormat)]
_AROUND: dict[str, tuple[Any, ...]] = {
    "stream": (True, False, 0, None),
    "status": (200, 200.0, 0, False, 201, 499, "completed", "incomplete", "failed", "200", "²", [], None),
    "route": ("a", "b", "", 0, 1, True, [], None),
    "group": ("a", "", None),
    "provider": ("openai", "OpenAI", "", None, {}),
    "model": ("gpt-5.1", "claude-opus-4-5", None, "m" * 201),
    "ttft_ms": (0.0, 120.5, 120, "30", -1.0, 1e12, True, None),
    "latency_ms": (1000.5, 70, "x", None),
    "ts": ("2026-11-29T10:00:01.5Z", "2026-11-29T12:00:01+02:00", 1.8e9, 1.8e12, "later", [], None),
}


def objects(format_: Format) -> list[dict[str, Any]]:
    """Lines of the format's sample that hold an object."""
    found = []
    for line in sample_lines(format_.name) if list(LOGS.glob(f"{format_.name}.json*")) else []:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found or [{"usage": {"prompt_tokens": 2000}}]


@st.composite
def changed(draw: st.DrawFn, values: list[dict[str, Any]]) -> bytes:
    """A line of the sample, with other values around its usage, and maybe one more replaced."""
    value = json.loads(json.dumps(draw(st.sampled_from(values))))
    around = {name: st.sampled_from(those) for name, those in _AROUND.items()}
    value.update(draw(st.fixed_dictionaries({}, optional=around)))
    holder = value
    while draw(st.booleans()) and holder:
        key = draw(st.sampled_from(sorted(holder)))
        if not isinstance(holder[key], dict):
            holder[key] = draw(VALUES)
            break
        holder = holder[key]
    return json.dumps(value).encode()


def counted(batches: list[list[Entry]] | list[list[Entry | RequestColumns]]) -> Ledger:
    ledger = Ledger("s", FullHit(), models=3, groups=3)
    ledger.prices = PRICES
    for entries in batches:
        ledger.add(entries)
    return ledger


@every_format
@settings(max_examples=20)
@given(data=st.data())
def test_columns_count_what_records_count(format_: Format, data: st.DataObject) -> None:
    usual = st.sampled_from(objects(format_)).map(lambda value: json.dumps(value).encode())
    odd = JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20)
    line = st.one_of(usual, usual, usual, changed(objects(format_)), odd)
    batches = data.draw(st.lists(st.lists(line, max_size=30), max_size=3))
    group_by = data.draw(st.sampled_from(["", "model"]))
    records, columns = make(format_, group_by), make(format_, group_by)
    one = counted([[*records.decode(lines)] for lines in batches])
    other = counted([columns.columns(lines) for lines in batches])
    assert other.changes() == one.changes()
    assert {m: (t.outcomes, t.ttft) for m, t in other.models.items()} == {
        m: (t.outcomes, t.ttft) for m, t in one.models.items()
    }
    assert columns.snapshot() == records.snapshot()


@pytest.mark.parametrize("name", BY_COLUMNS)
def test_usual_lines_make_no_records(name: str) -> None:
    """Otherwise the test above would compare records with records."""
    format_ = get_format(name)
    usual = [
        line
        for line in sample_lines(name)
        if [type(e) for e in format_.decoder(DecoderOptions()).decode([line])] == [RequestRecord]
        and type(format_.decoder(DecoderOptions()).columns([line])[0]) is RequestColumns
    ]
    assert len(usual) > len(sample_lines(name)) / 3
    made = format_.decoder(DecoderOptions()).columns(usual * 3)
    assert {type(entry) for entry in made} == {RequestColumns}
    assert sum(
        len(entry.prompt_tokens) for entry in in_columns(made) if isinstance(entry, RequestColumns)
    ) == (3 * len(usual))


def test_auto_hands_on_the_columns_of_the_format_it_chose() -> None:
    decoder = get_format("auto").decoder(DecoderOptions())
    usage = {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 1024}}
    line = json.dumps({"model": "m", "status": 200, "usage": usage})
    (first,), (second,) = (decoder.columns([line.encode()]) for _ in range(2))
    assert isinstance(first, RequestRecord), "the line that decides"
    assert isinstance(second, RequestColumns)
    assert [*second.cached_tokens] == [1024]


def test_a_status_of_false_is_a_failure_also_after_one_of_zero() -> None:
    """0 == False: a set that remembered one would know the other."""
    usage = {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 1024}}
    lines = [json.dumps({"status": status, "usage": usage}).encode() for status in (0, False, "done", False)]
    ledger = counted([get_format("openai_chat").decoder(DecoderOptions()).columns(lines)])
    (tally,) = ledger.tallies.values()
    assert (tally.outcomes, tally.errors) == ({"partial": 2}, {"failed": 2})
