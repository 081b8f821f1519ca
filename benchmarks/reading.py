"""Reads a whole log file with a source of the exporter."""

from pathlib import Path

from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.state import StateStore


def read_all(path: Path, format_name: str, count: int, requests: int | None = None) -> None:
    """Read the file and check that all `count` lines, or `requests` of them, were requests."""
    options = SourceOptions("bench", (str(path),), "beginning", DecoderOptions(), FullHit())
    source = LogSource(options, get_format(format_name), StateStore(None))
    now = 0.0
    while source.ledger.health.lines < count:
        source.poll(now)
        now += 1.0
    source.close()
    counted = sum(sum(tally.outcomes.values()) for tally in source.ledger.tallies.values())
    assert counted == (requests or count), f"{format_name}: {counted} requests of {count} lines"
