"""Counting records: every record once, bounded groups, and the same counters after a restart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import OUTCOMES, Distribution, RequestRecord, Sample, Skipped
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit, classify

_tokens = st.integers(0, 20_000)
_seconds = st.none() | st.floats(0.0, 1000.0, allow_nan=False)


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    prompt = draw(_tokens)
    cached = draw(st.none() | st.integers(0, prompt))
    written = draw(st.none() | st.integers(0, prompt - (cached or 0)))
    split = (("5m", draw(st.integers(0, written))),) if written else ()
    return RequestRecord(
        prompt, cached, written, draw(st.none() | _tokens), draw(_seconds), draw(_seconds),
        draw(st.none() | st.floats(1e9, 2e9)), draw(st.sampled_from(["a", "b"])),
        draw(st.sampled_from(["m", "n"])), draw(st.sampled_from(["", "x"])), written_by_ttl=split,
        granule=draw(st.sampled_from([1, 16, 128])), minimum_tokens=draw(st.sampled_from([0, 1024])),
    )  # fmt: skip


def ledger(**limits: int) -> Ledger:
    return Ledger("s", FullHit(), **limits)


def _sum(samples: list[Sample], metric: c.Metric, **labels: str) -> float:
    total = 0.0
    for sample in samples:
        named = dict(zip(metric.labels, sample.labels, strict=False))
        if sample.metric is metric and all(named[k] == v for k, v in labels.items()):
            assert isinstance(sample.value, float)
            total += sample.value
    return total


@given(st.lists(st.lists(records(), max_size=20), max_size=5))
def test_counters_equal_the_plain_sums_of_the_records(batches: list[list[RequestRecord]]) -> None:
    counted = ledger()
    for batch in batches:
        counted.add(batch)
    every = [record for batch in batches for record in batch]
    samples = list(counted.samples())
    known = [r for r in every if r.cached_tokens is not None]
    for outcome in OUTCOMES:
        expected = sum(
            classify(r.prompt_tokens, r.cached_tokens, r.granule, r.minimum_tokens, FullHit()) == outcome
            for r in every
        )
        assert _sum(samples, c.REQUESTS, outcome=outcome) == expected
    assert _sum(samples, c.REQUEST_PROMPT_TOKENS) == sum(r.prompt_tokens or 0 for r in known)
    assert _sum(samples, c.REQUEST_CACHED_TOKENS) == sum(r.cached_tokens or 0 for r in known)
    assert _sum(samples, c.REQUEST_OUTPUT_TOKENS) == sum(r.output_tokens or 0 for r in every)
    assert _sum(samples, c.REQUEST_WRITTEN_TOKENS) == sum(r.written_tokens or 0 for r in every)


@given(st.lists(records(), min_size=1, max_size=30))
def test_histograms_hold_every_observation_in_its_bucket(batch: list[RequestRecord]) -> None:
    counted = ledger()
    counted.add(batch)
    seconds = [r.ttft_seconds for r in batch if r.ttft_seconds is not None]
    states = [s.value for s in counted.samples() if s.metric is c.REQUEST_TTFT]
    for place, edge in enumerate(c.SECONDS_BUCKETS):
        found = sum(state.counts[place] for state in states if isinstance(state, Distribution))
        assert found == sum(value <= edge for value in seconds)
    total = sum(state.sum for state in states if isinstance(state, Distribution))
    assert total == pytest.approx(sum(seconds))


@given(st.lists(records(), max_size=20), st.lists(records(), max_size=20))
def test_a_restored_ledger_goes_on_where_the_saved_one_was(
    first: list[RequestRecord], second: list[RequestRecord]
) -> None:
    whole, saved = ledger(), ledger()
    store: dict[str, bytes] = {}
    for batch in (first, second):
        whole.add(batch)
        saved.add(batch)
        store.update(saved.changes())
        saved.committed()
        saved = ledger()
        saved.restore(store)
    assert list(saved.samples()) == list(whole.samples())


def test_only_what_changed_is_written_again() -> None:
    counted = ledger()
    counted.add([RequestRecord(10, 5, model_name="a"), RequestRecord(10, 5, model_name="b")])
    assert len(counted.changes()) == 3
    assert len(counted.changes()) == 3, "until committed nothing is forgotten"
    counted.committed()
    counted.add([RequestRecord(10, 5, model_name="b")])
    assert len(counted.changes()) == 2


def test_a_million_names_end_in_other() -> None:
    counted = ledger(models=3, groups=2)
    counted.add([RequestRecord(10, 5, model_name=f"m{n}", group=f"g{n % 50}") for n in range(1000)])
    samples = list(counted.samples())
    assert len(counted.tallies) <= 4 * 3
    assert len(counted._admitted) <= 4 * 3
    assert _sum(samples, c.REQUESTS) == 1000
    assert _sum(samples, c.REQUESTS, model_name="other") > 900


def test_failures_and_errors_are_counted_by_reason_and_are_no_requests() -> None:
    counted = ledger()
    counted.add([
        RecordError("not_json"),
        RecordError("invalid"),
        Skipped("rate_limited", provider="p", model_name="m"),
        Skipped("response_cache"),
        Skipped("not_a_request"),
    ])  # fmt: skip
    samples = list(counted.samples())
    assert _sum(samples, c.REQUESTS) == 0
    assert _sum(samples, c.REQUEST_ERRORS, reason="rate_limited") == 1
    assert _sum(samples, c.LOG_PARSE_FAILURES) == 2


def test_windows_have_no_sample_without_traffic_and_the_exact_ratio_with_it() -> None:
    counted = ledger()
    counted.tick(0.0)
    counted.add([RequestRecord(1000, 990), RequestRecord(1000, 0), RequestRecord(500, None)])
    counted.tick(15.0)
    ratios = {s.labels[-1]: s.value for s in counted.samples() if s.metric is c.TOKEN_HIT_RATIO}
    hits = {s.labels[-1]: s.value for s in counted.samples() if s.metric is c.REQUEST_HIT_RATIO}
    assert ratios == dict.fromkeys(("1m", "5m", "1h"), 990 / 2000)
    assert hits == dict.fromkeys(("1m", "5m", "1h"), 1 / 2)
    counted.tick(80.0)
    assert {s.labels[-1] for s in counted.samples() if s.metric is c.TOKEN_HIT_RATIO} == {"5m", "1h"}
