"""Every name obeys the conventions, and what is documented is what is emitted."""

import re
import subprocess
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kvcache_exporter.catalogue import CATALOGUE, DROPPED_SERIES, TOKEN_BUCKETS, Metric
from kvcache_exporter.commands.metrics import markdown
from kvcache_exporter.exposition import exposition
from kvcache_exporter.model import Distribution, Sample

ROOT = Path(__file__).parents[1]
# promtool objects to the word `counter` in this name, which the vocabulary of the dashboards gives.
NOT_LINTED = {"kvcache_target_counter_resets_total"}


def one_of_each(metrics: tuple[Metric, ...] = CATALOGUE) -> list[Sample]:
    value = Distribution(TOKEN_BUCKETS, (1.0,) * (len(TOKEN_BUCKETS) + 1), 1.0)
    return [
        Sample(m, tuple(f"a-{name}" for name in m.labels), value if m.kind == "histogram" else 1.0)
        for m in metrics
    ]


def test_names_units_and_help_follow_the_conventions() -> None:
    for metric in CATALOGUE:
        assert re.fullmatch(r"kvcache_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind in ("counter", "unknown"))
        assert metric.name.endswith("_info") == (metric.kind == "info")
        assert re.fullmatch(r"[A-Z].*[^.]\.", metric.help), metric.name
        assert not re.search(r"percent|_ms\b|millis|_bytes_total_", metric.name)
        assert len(set(metric.labels)) == len(metric.labels)
        assert not set(metric.labels) & {"instance", "job", "cluster", "le", "type"}
        if metric.name.endswith("_ratio"):
            assert "0 to 1" in metric.help


def test_no_two_families_clash_in_openmetrics() -> None:
    """A counter x_total and a histogram x are one family there; so are x and x_count."""
    families = [metric.family for metric in CATALOGUE]
    assert len(set(families)) == len(families)
    made = {
        m.name + suffix
        for m in CATALOGUE
        if m.kind == "histogram"
        for suffix in ("_bucket", "_sum", "_count")
    }
    assert not made & {metric.name for metric in CATALOGUE}


def test_a_page_with_every_metric_passes_promtool() -> None:
    page = exposition(one_of_each(tuple(m for m in CATALOGUE if m.name not in NOT_LINTED)))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_page_with_every_metric_passes_the_strict_openmetrics_parser() -> None:
    parsed = list(text_string_to_metric_families(exposition(one_of_each(), openmetrics=True)))
    # The count of dropped series is made by the page itself.
    assert {f.name for f in parsed} == {m.family for m in CATALOGUE if m is not DROPPED_SERIES}


def test_the_documentation_is_fresh() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == markdown()
