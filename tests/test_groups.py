"""Prompt groups: fields, templates of fields, and bands of prompt length."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.cli import main
from kvcache_exporter.errors import ConfigError, RecordError
from kvcache_exporter.model import RequestColumns, RequestRecord
from kvcache_exporter.requests.bands import Bands
from kvcache_exporter.requests.formats import FORMATS, get_format
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import template_problem
from kvcache_exporter.settings import read_config

LOGS = Path(__file__).parent / "fixtures" / "logs"


def line(**more: object) -> bytes:
    usage = {"prompt_tokens": 2000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    return json.dumps({"model": "m", "status": 200, "usage": usage, **more}).encode()


@pytest.mark.parametrize(
    ("group_by", "expected"),
    [
        ("team", "search"),
        ("{team}", "search"),
        ("{team}/{metadata.route}", "search/chat"),
        ("{headers.x-tenant}: {tags.0}", "acme: nightly"),
        ("{team}/{nowhere}", "search/-"),
        ("{nowhere}/{neither}", ""),
        ("nowhere", ""),
        ("{metadata.shards}-{team}", "3-search"),
        ("tags", "nightly,x"),
        ("{team}: {tags}", "search: nightly,x"),
        ("empty", ""),
    ],
)
def test_a_group_is_a_field_or_a_template_of_fields(group_by: str, expected: str) -> None:
    decoder = get_format("openai_chat").decoder(DecoderOptions(group_by=group_by))
    entry = line(
        team="search",
        metadata={"route": "chat", "shards": 3},
        headers={"x-tenant": "acme"},
        tags=["nightly", "x", {"a": 1}],
        empty=[],
    )
    (record,) = decoder.decode([entry])
    assert isinstance(record, RequestRecord)
    assert record.group == expected
    (columns,) = decoder.columns([entry])
    assert isinstance(columns, RequestColumns)
    assert columns.group == expected


@pytest.mark.parametrize("name", sorted(form.name for form in FORMATS if form.name not in {"auto", "custom"}))
def test_every_format_takes_a_template(name: str) -> None:
    """The model name stands in every format's records; nothing else does."""
    logs = [file for file in LOGS.glob(f"{name}.*") if ".expected" not in file.name]
    lines = [line for log in logs for line in log.read_bytes().splitlines()]
    fields = ("model", "modelId", "message.model", "model_name", "payload.model", "gen_ai.request.model")
    template = "<" + "".join(f"{{{field}}}" for field in fields) + ">"
    decoder = get_format(name).decoder(DecoderOptions(group_by=template))
    records = [e for e in [*decoder.decode(lines), *decoder.flush()] if isinstance(e, RequestRecord)]
    assert all(r.group == "" or (r.group[0] == "<" and r.group[-1] == ">") for r in records)


@pytest.mark.parametrize(
    ("group_by", "says"),
    [
        ("{team", "braces must come in pairs"),
        ("team}", "braces"),
        ("{}", "{} names no field"),
        ("{a{b}}", "braces"),
    ],
)
def test_a_bad_template_is_an_error_of_the_configuration(group_by: str, says: str, tmp_path: Path) -> None:
    assert says in (template_problem(group_by) or "")
    config = tmp_path / "kvcache.yaml"
    config.write_text(f"requests: [{{name: s, paths: [a.jsonl], group_by: {json.dumps(group_by)}}}]\n")
    with pytest.raises(ConfigError, match=r"requests\[0\].group_by: "):
        read_config(config)


@given(st.lists(st.integers(1, 100_000), unique=True, max_size=16).map(sorted), st.integers(0, 200_000))
def test_each_length_falls_into_the_band_that_names_it(edges: list[int], prompt: int) -> None:
    (found,) = Bands(edges).apply([RequestRecord(prompt, 0, group="g")])
    assert isinstance(found, RequestRecord)
    if not edges:
        assert found.group == "g"
    else:
        band = found.group.removeprefix("g ")
        low, _, high = band.removesuffix("+").partition("-")
        assert int(low) <= prompt
        assert band.endswith("+") or prompt <= int(high)


def test_what_has_no_prompt_length_has_no_band() -> None:
    entries: list[Entry] = [RequestRecord(None, None, group="g"), RecordError("not_json")]
    assert Bands((10,)).apply(entries) == entries


def test_bands_split_groups_of_the_exporter_and_of_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, config = tmp_path / "usage.jsonl", tmp_path / "kvcache.yaml"
    log.write_bytes(line(route="chat") + b"\n")
    config.write_text(
        f"requests: [{{name: s, format: openai_chat, paths: [{log}], start_at: beginning, "
        "length_bands: [1024, 8192]}]\n"
    )
    app = App(config)
    app.start()
    deadline = time.monotonic() + 30
    while not app.sources[0].ledger.health.lines:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (labels,) = {s.labels for s in app.sources[0].ledger.samples() if s.metric is c.REQUEST_PROMPT_TOKENS}
    assert labels[-1] == "chat 1025-8192"
    app.stop()
    assert main(["report", str(log), "--length-bands", "1024,8192", "--json"]) == 0
    assert [g["group"] for g in json.loads(capsys.readouterr().out)["groups"]] == ["chat 1025-8192"]


def test_a_field_that_no_entry_has_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "usage.jsonl"
    log.write_bytes(line(team="search") + b"\n")
    assert main(["report", str(log), "--group-by", "tema"]) == 0
    assert "--group-by tema: no entry has such a field" in capsys.readouterr().err
    assert main(["report", str(log), "--group-by", "team"]) == 0
    assert "no entry" not in capsys.readouterr().err


@pytest.mark.parametrize("bands", ["8192,1024", "a", "1024,", "5,5"])
def test_bands_that_do_not_rise_are_bad_usage(bands: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["report", str(tmp_path / "x"), "--length-bands", bands])
    assert caught.value.code == 2
