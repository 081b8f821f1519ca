"""Speed by CPU time against something else in the same process: half of what `make benchmark` asks for.

Busy machines slow both sides; each is the best of several runs.
"""

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest
from benchmarks import events, logs, pages
from benchmarks.reading import read_all
from benchmarks.timing import cpu_seconds
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kvcache_exporter.engines import ENGINES
from kvcache_exporter.engines.plugin import PLUGIN
from kvcache_exporter.exposition import Page, Renderer
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.parse import PageParser
from kvcache_exporter.scrape.select import wanted_names


def test_a_log_is_read_and_counted_faster_than_json_decodes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.44 of its time here."""
    monkeypatch.setattr(logs, "LINES", 20_000)
    path = tmp_path / "usage.jsonl"
    logs.write(path)
    lines = path.read_bytes().splitlines()
    reference = cpu_seconds(lambda: [json.loads(line) for line in lines], 3)
    assert cpu_seconds(lambda: read_all(path, "openai_chat", len(lines)), 3) < 0.9 * reference


def test_a_page_of_a_known_layout_is_read_25_times_as_fast_as_by_the_reference() -> None:
    page = pages.full_page("vllm-0.32.0")
    parser = PageParser(wanted_names((*ENGINES, PLUGIN)))
    parser.parse(page)
    reference = cpu_seconds(lambda: list(text_string_to_metric_families(page.decode())), 3)
    assert cpu_seconds(lambda: [parser.parse(page) for _ in range(25)], 3) < reference


def test_metrics_are_written_several_times_as_fast_as_by_the_reference() -> None:
    collector = TargetCollector("replica", ENGINES)
    for second in range(3):
        collector.page(pages.full_page("vllm-0.32.0"), 1000.0 + 15 * second)
    fleet = [pages.as_target(collector.samples, f"10.0.0.{n}:8000") for n in range(50)]
    blocks = [Renderer().block(samples) for samples in fleet]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(pages.Reference([sample for samples in fleet for sample in samples]))
    reference = cpu_seconds(lambda: generate_latest(registry), 3)
    assert 2.5 * cpu_seconds(lambda: Page(10**6).text(blocks).encode(), 3) < reference


@pytest.mark.parametrize(
    ("per_batch", "per_removal", "as_maps"), [(64, 1, False), (64, 1, True), (256, 64, True)]
)
def test_block_events_are_followed_as_fast_as_msgpack_alone_is_decoded(
    per_batch: int, per_removal: int, as_maps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of its time here: the tokens are not decoded."""
    monkeypatch.setattr(events, "BLOCKS", 60_000)
    batches = events.make_batches(per_batch, per_removal, as_maps=as_maps)
    reference = cpu_seconds(lambda: [msgspec.msgpack.decode(batch) for batch in batches], 3)
    assert cpu_seconds(partial(events.count, batches), 3) < reference
