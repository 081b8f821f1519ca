"""A real Prometheus scrapes the exporter, and PromQL gives what exact arithmetic on the recording gives."""

import json
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from processes import (
    Engine,
    free_port,
    prometheus,
    query,
    running,
    scrape,
    start_exporter,
    value,
    wait_until,
)

from kvcache_exporter.catalogue import SECONDS_BUCKETS
from kvcache_exporter.demo.playback import load_recording
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.outcome import FullHit, classify

pytestmark = pytest.mark.e2e

RECORDING = Path(__file__).parents[1] / "fixtures" / "recordings" / "vllm-0.32.0"
TRUTH = json.loads((RECORDING / "truth.json").read_text())["phases"]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with closing(Engine(RECORDING)) as made:
        yield made


def _records(lines: list[bytes]) -> list[RequestRecord]:
    entries = get_format("vllm").decoder(DecoderOptions()).decode([line.rstrip() for line in lines])
    return [entry for entry in entries if isinstance(entry, RequestRecord)]


def _found(url: str, expression: str) -> bool:
    return bool(query(url, expression))


def _outcome(record: RequestRecord) -> str:
    return classify(
        record.prompt_tokens, record.cached_tokens, record.granule, record.minimum_tokens, FullHit()
    )


def _quantile(values: list[float], q: float) -> float:
    """What histogram_quantile gives for these observations: linear within the bucket of the rank."""
    counts = [0.0] * (len(SECONDS_BUCKETS) + 1)
    for v in values:
        counts[bisect_left(SECONDS_BUCKETS, v)] += 1
    rank, below = q * len(values), 0.0
    for place, count in enumerate(counts[:-1]):
        if below + count >= rank:
            start = SECONDS_BUCKETS[place - 1] if place else 0.0
            return start + (SECONDS_BUCKETS[place] - start) * (rank - below) / count
        below += count
    return SECONDS_BUCKETS[-1]


def test_promql_gives_what_the_recording_adds_up_to(tmp_path: Path, engine: Engine) -> None:
    recorded = next(e for e in load_recording() if e.name == "vllm")
    lines = [line for _, line in recorded.lines]
    by_outcome: dict[str, list[bytes]] = defaultdict(list)
    for line, record in zip(lines, _records(lines), strict=True):
        by_outcome[_outcome(record)].append(line)
    # One request of each outcome first: a counter's first sample is a baseline, not an increase.
    seeds = [found.pop(0) for found in by_outcome.values()]
    rest = [line for found in by_outcome.values() for line in found]

    engine.show("011")
    usage_log = tmp_path / "gateway.jsonl"
    usage_log.write_bytes(b"".join(seeds))
    port, config = free_port(), tmp_path / "kvcache.yaml"
    config.write_text(
        "scrape: {interval: 1s, timeout: 1s, max_age: 500ms}\n"
        f"targets: [{{engine: auto, static: ['{engine.address}']}}]\n"
        f"requests: [{{name: gateway, format: auto, paths: ['{usage_log}'], start_at: beginning}}]\n"
    )
    with running(start_exporter(config, port, tmp_path / "exporter.log")), prometheus(tmp_path, port) as url:
        for metric in ("kvcache_preemptions_total", "kvcache_requests_total"):
            seen = f"count_over_time({metric}[1m]) >= 3"
            wait_until(f"three scrapes of {metric}", partial(_found, url, seen))
        before = time.time()
        with usage_log.open("ab") as file:
            file.write(b"".join(rest))
        for number in ("025", "031"):
            engine.show(number)
            shown = f"kvcache_target_last_success_timestamp_seconds > {time.time()}"
            wait_until(f"a scrape of page {number}", partial(_found, url, shown))
        done = f"kvcache_log_lines_total == {len(lines)}"
        wait_until("the log being read", partial(_found, url, done))
        now = time.time()

        hostile, mixed = TRUTH["hostile"], TRUTH["mixed"]
        cached = hostile["cached_tokens"] + mixed["cached_tokens"]
        prompt = hostile["prompt_tokens"] + mixed["prompt_tokens"]
        rates = (
            "sum(rate(kvcache_cached_prompt_tokens_total[1m])) / sum(rate(kvcache_prompt_tokens_total[1m]))"
        )
        assert value(url, rates, now) == pytest.approx(cached / prompt, rel=1e-9)

        preempted = hostile["engine_increase"]["preemptions"]
        rise = "max_over_time(kvcache_preemptions_total[1m]) - min_over_time(kvcache_preemptions_total[1m])"
        assert value(url, rise, now) == preempted
        # rate() reaches out by half a scrape interval to the window's start, and by up to 1.1 to its end.
        scrapes = value(url, "count_over_time(kvcache_preemptions_total[1m])", now)
        rate = value(url, "rate(kvcache_preemptions_total[1m])", now)
        assert scrapes is not None
        assert rate == pytest.approx(preempted / 60, rel=1.6 / (scrapes - 1))

        records = _records(rest)
        observed: dict[str, list[float]] = defaultdict(list)
        for record in records:
            if record.ttft_seconds is not None:
                observed[_outcome(record)].append(record.ttft_seconds)
        assert set(observed) == {"full", "partial", "miss"}
        for outcome, values in observed.items():
            for q in (0.5, 0.99):
                # rate() would stretch each bucket by its own first value: exact is a difference.
                buckets = f'kvcache_request_time_to_first_token_seconds_bucket{{outcome="{outcome}"}}'
                rise = f"sum by (le) ({buckets}) - sum by (le) ({buckets} @ {before})"
                expression = f"histogram_quantile({q}, {rise})"
                assert value(url, expression, now) == pytest.approx(_quantile(values, q), rel=1e-6)

        hits = sum(_outcome(record) == "full" for record in records)
        known = 'kvcache_requests_total{outcome!="unknown"}'
        full = 'kvcache_requests_total{outcome="full"}'
        share = f"(sum({full}) - sum({full} @ {before})) / (sum({known}) - sum({known} @ {before}))"
        assert value(url, share, now) == pytest.approx(hits / len(records), rel=1e-9)

        page = scrape(port)
        assert (
            page[
                f'kvcache_token_hit_ratio{{target="{engine.address}",model_name="tiny",engine_rank="0",window="5m"}}'
            ]
            == cached / prompt
        )
        assert value(url, "kvcache_target_up") == 1.0
