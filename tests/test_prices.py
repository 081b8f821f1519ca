"""Money: every figure against exact arithmetic on the price table's own numbers, and nothing guessed."""

import json
import time
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.cli import main
from kvcache_exporter.errors import ConfigError, PricesError, StateError
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.request_sources import RequestSources
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.prices import Prices, load_prices
from kvcache_exporter.settings import read_config

EXAMPLE = Path(__file__).parents[1] / "docs" / "prices-example.json"
TABLE = json.loads(EXAMPLE.read_text())
TTLS = {"5m": "", "30m": "", "default": "", "1h": "_above_1hr", "12h": "_above_12hr"}


def example() -> Prices:
    return load_prices(EXAMPLE, date(2026, 11, 29))


def written(path: Path, entries: object) -> Path:
    path.write_text(json.dumps(entries))
    return path


def record(**given: object) -> RequestRecord:
    values = {"prompt_tokens": 10_000, "cached_tokens": 0, "output_tokens": 100, **given}
    return RequestRecord(**values)  # type: ignore[arg-type]


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    prompt = draw(st.integers(0, 600_000))
    cached = draw(st.integers(0, prompt))
    split = []
    left = prompt - cached
    for ttl in ("5m", "1h", "12h"):
        tokens = draw(st.integers(0, left))
        left -= tokens
        split.append((ttl, tokens))
    total = sum(tokens for _, tokens in split) + draw(st.integers(0, left))
    return RequestRecord(
        prompt, cached, total, draw(st.integers(0, 50_000)), model_name=draw(st.sampled_from(sorted(TABLE))),
        written_by_ttl=tuple(split),
    )  # fmt: skip


def exact(r: RequestRecord) -> tuple[Fraction, Fraction] | None:
    """Cost and cost without cache by the table's decimals; None where a needed price is missing."""
    entry = TABLE[r.model_name]
    prompt, cached = r.prompt_tokens or 0, r.cached_tokens or 0
    edges = [200, 272]
    over = [f"_above_{e}k_tokens" for e in edges if f"input_cost_per_token_above_{e}k_tokens" in entry]
    suffix = next((s for s in reversed(over) if prompt > int(s.split("_")[2][:-1]) * 1000), "")

    def price(field: str) -> Fraction | None:
        value = entry.get(field + suffix, entry.get(field))
        return None if value is None else Fraction(str(value))

    kept = dict(r.written_by_ttl)
    kept["default"] = (r.written_tokens or 0) - sum(kept.values())
    into, out = price("input_cost_per_token"), price("output_cost_per_token")
    assert into is not None
    assert out is not None
    cost = (prompt - cached - (r.written_tokens or 0)) * into + (r.output_tokens or 0) * out
    parts = [(cached, "cache_read_input_token_cost")]
    parts += [(n, f"cache_creation_input_token_cost{TTLS[ttl]}") for ttl, n in kept.items()]
    for tokens, field in parts:
        rate = price(field)
        if tokens and rate is None:
            return None
        cost += tokens * (rate or 0)
    return cost, prompt * into + (r.output_tokens or 0) * out


@given(records())
def test_a_bill_equals_exact_arithmetic(one: RequestRecord) -> None:
    price = example().of("", one.model_name)
    assert price is not None
    bill, expected = price.bill(one), exact(one)
    if expected is None:
        assert bill is None
    else:
        assert bill is not None
        assert bill.cost == pytest.approx(float(expected[0]), rel=1e-9, abs=1e-12)
        assert bill.without_cache == pytest.approx(float(expected[1]), rel=1e-9, abs=1e-12)


def test_a_write_that_is_never_read_costs_more_than_no_cache_and_one_read_pays_for_it() -> None:
    price = example().of("anthropic", "claude-opus-5")
    assert price is not None
    write = price.bill(record(prompt_tokens=1_000_000, written_tokens=1_000_000, output_tokens=0))
    read = price.bill(record(prompt_tokens=1_000_000, cached_tokens=1_000_000, output_tokens=0))
    assert write is not None
    assert read is not None
    assert write.cost == pytest.approx(6.25)
    assert write.without_cache == pytest.approx(5.0)
    assert write.cost + read.cost == pytest.approx(6.75)


@pytest.mark.parametrize(
    ("provider", "model", "found"),
    [
        ("openai", "gpt-5.1", "gpt-5.1"),
        ("", "openai/gpt-5.1", "gpt-5.1"),
        ("openai", "gpt-5.1-2026-08-01", "gpt-5.1"),
        ("anthropic", "claude-opus-5-20260801", "claude-opus-5"),
        ("vertex_ai", "claude-opus-5@20260801", "claude-opus-5"),
        ("gemini", "gemini-2.5-pro", "gemini/gemini-2.5-pro"),
        ("openai", "gpt-5.1-mini", None),
        ("", "gpt-5", None),
        ("", "", None),
    ],
)
def test_a_model_is_found_as_logs_name_it_and_no_other_is_taken_for_it(
    provider: str, model: str, found: str | None
) -> None:
    prices = example()
    assert prices.of(provider, model) is (prices.table[found] if found else None)


@pytest.mark.parametrize("missing", ["prompt_tokens", "cached_tokens", "output_tokens"])
def test_what_the_log_does_not_say_has_no_price(missing: str) -> None:
    price = example().of("", "gpt-5.1")
    assert price is not None
    assert price.bill(record(**{missing: None})) is None
    assert price.bill(record()) is not None


def test_a_read_price_of_zero_is_missing_data(tmp_path: Path) -> None:
    entry = {
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 1e-6,
        "cache_read_input_token_cost": 0,
    }
    free = {"input_cost_per_token": 0, "output_cost_per_token": 0}
    prices = load_prices(written(tmp_path / "p.json", {"m": entry, "free": free}))
    paid, gift = prices.of("", "m"), prices.of("", "free")
    assert paid is not None
    assert gift is not None
    assert paid.bill(record(cached_tokens=5)) is None
    assert gift.bill(record(cached_tokens=5)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "cannot read prices"),
        ("[]", "found a list, expected a mapping of model names to prices"),
        ('{"sample_spec": {"mode": "chat"}}', "no entry has input_cost_per_token and output_cost_per_token"),
        ('{"m": {"input_cost_per_token": "1", "output_cost_per_token": NaN}}', "no entry has"),
    ],
)
def test_a_table_that_prices_nothing_is_an_error_of_the_configuration(
    content: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(PricesError, match=says):
        load_prices(tmp_path / "p.json")
    config = tmp_path / "kvcache.yaml"
    config.write_text('targets: [{static: ["127.0.0.1:1"]}]\nprices: {file: p.json}\n')
    with pytest.raises(ConfigError, match=f"prices.file: .*{says}"):
        read_config(config)


def _sum(ledger: Ledger, metric: c.Metric) -> float:
    return sum(s.value for s in ledger.samples() if s.metric is metric and isinstance(s.value, float))


@given(st.lists(records(), max_size=30))
def test_the_ledger_counts_what_the_bills_come_to_and_keeps_it_over_a_restart(
    every: list[RequestRecord],
) -> None:
    ledger = Ledger("s", FullHit(), models=2)
    ledger.prices = example()
    ledger.add(every)
    restored = Ledger("s", FullHit(), models=2)
    restored.restore(ledger.changes())
    bills = [exact(r) for r in every]
    for one in (ledger, restored):
        assert _sum(one, c.REQUEST_COST) == pytest.approx(float(sum(b[0] for b in bills if b)), abs=1e-9)
        without = float(sum(b[1] for b in bills if b))
        assert _sum(one, c.REQUEST_COST_WITHOUT_CACHE) == pytest.approx(without, abs=1e-9)
        saved = _sum(one, c.REQUEST_COST_WITHOUT_CACHE) - _sum(one, c.REQUEST_COST)
        assert _sum(one, c.REQUEST_SAVINGS) == pytest.approx(saved, abs=1e-9)
        assert _sum(one, c.REQUESTS_UNPRICED) == bills.count(None)


def test_without_a_table_there_is_no_series_of_money() -> None:
    ledger = Ledger("s", FullHit())
    ledger.add([record(model_name="gpt-5.1")])
    assert not {s.metric for s in ledger.samples()} & {c.REQUEST_COST, c.REQUEST_SAVINGS, c.REQUESTS_UNPRICED}


def _wait_for_lines(app: App, lines: int) -> None:
    deadline = time.monotonic() + 30
    while app.sources[0].ledger.health.lines < lines:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_reload_takes_the_new_prices_for_what_comes_then(tmp_path: Path) -> None:
    rates = {"output_cost_per_token": 0.0, "cache_read_input_token_cost": 1e-7}
    written(tmp_path / "p.json", {"m": {**rates, "input_cost_per_token": 1e-6}})
    log, config = tmp_path / "usage.jsonl", tmp_path / "kvcache.yaml"
    log.touch()
    config.write_text(
        f"requests: [{{name: s, format: custom, paths: [{log}], start_at: beginning, fields: "
        "{prompt_tokens: p, cached_tokens: c, output_tokens: o, model_name: m}}]\n"
        "prices: {file: p.json}\n"
    )
    app = App(config)
    app.start()
    line = json.dumps({"p": 1_000_000, "c": 0, "o": 0, "m": "m"}) + "\n"
    with log.open("a") as out:
        out.write(line)
    _wait_for_lines(app, 1)
    written(tmp_path / "p.json", {"m": {**rates, "input_cost_per_token": 3e-6}})
    assert app.reload() is None
    with log.open("a") as out:
        out.write(line)
    _wait_for_lines(app, 2)
    assert _sum(app.sources[0].ledger, c.REQUEST_COST) == pytest.approx(1.0 + 3.0)
    app.stop()


def test_prices_of_a_reload_that_fails_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"input_cost_per_token": 1e-6, "output_cost_per_token": 0.0}
    written(tmp_path / "p.json", {"m": rates})
    config = tmp_path / "kvcache.yaml"
    config.write_text('targets: [{static: ["127.0.0.1:1"]}]\nprices: {file: p.json}\n')
    app = App(config)
    before = app.prices
    written(tmp_path / "p.json", {"m": rates, "n": rates})

    def refuse(*_: object) -> None:
        raise StateError("the state file is on fire")

    with monkeypatch.context() as patched:
        patched.setattr(RequestSources, "use", refuse)
        assert app.reload() == "the state file is on fire"
    assert app.prices is before
    assert app.reload() is None
    assert app.prices is not None
    assert len(app.prices.table) == 2


def test_report_prices_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usage = {"prompt_tokens": 4_000_000, "completion_tokens": 0}
    lines = [
        {"model": model, "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 2_000_000}}}
        for model in ("gpt-5.1", "gpt-5.1", "not-in-the-table")
    ]
    log = tmp_path / "usage.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["report", str(log), "--format", "openai_chat", "--prices", str(EXAMPLE)]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cost_usd"], found["savings_usd"], found["unpriced_requests"]) == (5.5, 4.5, 1)
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "cost $5.50, without a cache $10.00: saved $4.50 (45.0 %)" in text
    assert "not in these sums: 1 of 3 requests; the table lacks the model" in text
    assert "        1 of openai/not-in-the-table\n" in text
    unpriced = {"provider": "openai", "model_name": "not-in-the-table", "tier": "", "requests": 1}
    assert found["unpriced"] == [unpriced]
