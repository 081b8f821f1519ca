"""Rules on recordings of real engines: silent on quiet phases, alerting on hostile ones.

A recorded phase lasts seconds; it is repeated at its recorded speed until alerts have had time to fire.
"""

import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from alert_cases import promtool, write_rules, write_test
from kvcache_alerts.write import ALERTS
from kvcache_exporter.catalogue import CATALOGUE
from kvcache_exporter.commands.recording import recorded_pages
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.exposition import exposition
from kvcache_exporter.scrape.collector import TargetCollector

RECORDINGS = Path(__file__).parent / "fixtures" / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())
QUIET = {"idle", "cold", "shared", "multiturn", "repeat", "cool", "shared-again", "shared-restart2"}
HOSTILE = {"hostile", "hostile2", "thrash"}
BEFORE, DURING = 40, 14
_COUNTERS = re.compile("|".join(m.name for m in CATALOGUE if m.kind in ("counter", "histogram")))
_SERIES = re.compile(r"(\w+)(\{.*\}) (\S+)")


class Phase(NamedTuple):
    recording: str
    name: str
    seconds: float
    before: dict[str, float]
    """Series at its start."""
    after: dict[str, float]
    peaks: dict[str, float]

    @property
    def target(self) -> str:
        return f"{self.recording}/{self.name}"

    def rise(self, metric: str) -> float:
        return sum(v - self.before.get(k, 0) for k, v in self.after.items() if k.startswith(metric))


def phases(recording: str) -> Iterator[Phase]:
    collector = TargetCollector(recording, ENGINES)
    pages = []
    for page in recorded_pages(RECORDINGS / recording):
        collector.page(page.path.read_bytes(), page.at)
        shown = (_SERIES.fullmatch(line) for line in exposition(collector.samples).splitlines())
        name = re.sub("-(start|end)$", "", page.phase)
        pages.append((name, page, {m[1] + m[2]: float(m[3]) for m in shown if m}))
    seen: set[str] = set()
    begin = pages[0]
    for name, found in groupby(pages, key=lambda p: p[0]):
        group = list(found)
        first = group[0] if group[0][1].phase.endswith("-start") else begin
        begin = group[-1]
        seconds = begin[1].at - first[1].at
        restarted = any(b[2].get(k, v) < v for a, b in pairwise([first, *group]) for k, v in _counters(a[2]))
        if seconds and name not in seen and not restarted:
            seen.add(name)
            peaks = {k: max(p[2].get(k, v) for p in group) for k, v in begin[2].items()}
            yield Phase(recording, name, seconds, first[2], begin[2], peaks)


def _counters(values: dict[str, float]) -> Iterator[tuple[str, float]]:
    return ((k, v) for k, v in values.items() if _COUNTERS.match(k))


def series(phase: Phase) -> dict[str, str]:
    """Nothing happens for `BEFORE` minutes, then the phase's increase goes on; gauges stand at their peak."""
    found = {}
    for name, after in phase.after.items():
        if "window=" in name:
            continue
        before, selector = phase.before.get(name), name.replace(phase.recording, phase.target)
        if _COUNTERS.match(name):
            # Anomalies are judged over minutes that reach back into the phase before: they are not repeated.
            repeats = "data_anomalies" not in name
            step = repeats * 60 * (after - (before or 0)) / phase.seconds
            start = f"_x{BEFORE}" if before is None else f"{before}x{BEFORE - 1}"
            found[selector] = f"{start} {(before or 0) + step if repeats else after}+{step}x{DURING}"
        else:
            calm = f"_x{BEFORE}" if before is None else f"{before}x{BEFORE - 1}"
            found[selector] = f"{calm} {phase.peaks[name]}x{DURING}"
    return found


ALL = [phase for name in NAMES for phase in phases(name)]
EXPORTER = {'kvcache_exporter_build_info{job="kvcache", instance="e:9409"}': f"1x{BEFORE + DURING}"}


def _run(folder: Path, chosen: list[Phase], checks: dict[str, object]) -> str:
    inputs = EXPORTER | {k: v for phase in chosen for k, v in series(phase).items()}
    test = {"interval": "1m", "input_series": [{"series": k, "values": v} for k, v in inputs.items()]}
    document = {"rule_files": write_rules(folder, {}), "evaluation_interval": "1m", "tests": [test | checks]}
    return promtool([write_test(folder / "recordings.test.yaml", document)])


def test_quiet_phases_raise_no_alert(tmp_path: Path) -> None:
    quiet = [phase for phase in ALL if phase.name in QUIET]
    assert len(quiet) > 40
    times = range(1, BEFORE + DURING, 3)
    checks = [{"eval_time": f"{at}m", "alertname": a.name, "exp_alerts": []} for at in times for a in ALERTS]
    assert not _run(tmp_path, quiet, {"alert_rule_test": checks})


@pytest.mark.parametrize(
    ("alert", "metric", "least"),
    [
        ("KVCachePreemptionSpike", "kvcache_preemptions_total", 10),
        ("KVCacheEvictionPressure", "kvcache_evicted_tokens_total", 5),
    ],
)
def test_hostile_phases_raise_the_alert(tmp_path: Path, alert: str, metric: str, least: int) -> None:
    hostile = [phase for phase in ALL if phase.name in HOSTILE and phase.rise(metric) > 0]
    if alert == "KVCacheEvictionPressure":
        waits = "kvcache_waiting_requests"
        hostile = [p for p in hostile if any(v > 0 for k, v in p.peaks.items() if k.startswith(waits))]
    assert len(hostile) >= least
    firing = f'count by (target) (ALERTS{{alertname="{alert}", alertstate="firing", severity="warning"}})'
    samples = [{"labels": f'{{target="{phase.target}"}}', "value": 1} for phase in hostile]
    check = {"expr": firing, "eval_time": f"{BEFORE + DURING - 1}m", "exp_samples": samples}
    assert not _run(tmp_path, hostile, {"promql_expr_test": [check]})
