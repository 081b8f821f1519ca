"""Compact cases for `promtool test rules`: series in, alerts out, with every label and annotation."""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote_plus

import yaml

from kvcache_alerts.write import ALERTS, files

RUNBOOKS = "https://github.com/kvcache-exporter/kvcache-exporter/blob/main/alerts/runbooks"
ENGINE = 'target="pod-0", namespace="llm", model_name="org/m", engine_rank="0"'
REPLICA = {"target": "pod-0", "namespace": "llm", "model_name": "org/m"}
LOG = 'source="gateway", provider="openai", model_name="org/m", group="chat"'
SOURCE = {"source": "gateway", "provider": "openai", "model_name": "org/m"}
_BY_NAME = {alert.name: alert for alert in ALERTS}


@dataclass(frozen=True)
class Fires:
    """One alert that is expected, with the labels that its expression gives."""

    labels: Mapping[str, str]
    description: str
    severity: str = "warning"


@dataclass(frozen=True)
class Case:
    """`series` maps a selector to promtool's notation; `at` is in minutes."""

    alert: str
    rule: str
    """What it proves."""
    series: Mapping[str, str]
    at: int
    fires: tuple[Fires, ...] = ()
    step: int = field(default=1)
    """Minutes between samples; rules are evaluated as often, or every ten minutes where it is more than 1."""


def expected(alert: str, fires: Fires) -> dict[str, object]:
    shown = ("cluster", "namespace", "model_name", "target")
    variables = "".join(f"&var-{k}={quote_plus(fires.labels[k])}" for k in shown if k in fires.labels)
    return {
        "exp_labels": {**fires.labels, "severity": fires.severity},
        "exp_annotations": {
            "summary": _BY_NAME[alert].summary,
            "description": fires.description,
            "runbook_url": f"{RUNBOOKS}/{alert}.md",
            "dashboard_url": f"http://localhost:3000/d/{_BY_NAME[alert].board}?from=now-3h&to=now{variables}",
        },
    }


def _test(case: Case) -> dict[str, object]:
    return {
        "name": f"{case.alert}: {case.rule}",
        "interval": f"{case.step}m",
        "input_series": [{"series": k, "values": v} for k, v in case.series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{case.at}m",
                "alertname": case.alert,
                "exp_alerts": [expected(case.alert, f) for f in case.fires],
            }
        ],
    }


def promtool(folder: Path, tests: Iterable[tuple[int, Mapping[str, object]]]) -> str:
    """Runs (step in minutes, test) pairs against the default rules; what promtool says, empty if all hold."""
    for name, text in files({}).items():
        folder.joinpath(name).write_text(text)
    by_step: dict[int, list[Mapping[str, object]]] = {}
    for step, test in tests:
        by_step.setdefault(step, []).append(test)
    paths = []
    for step, group in by_step.items():
        path = folder / f"every_{step}m.test.yaml"
        document = {
            "rule_files": ["recording.yaml", "alerting.yaml"],
            "evaluation_interval": "1m" if step == 1 else "10m",
            "tests": group,
        }
        path.write_text(yaml.safe_dump(document, width=1000))
        paths.append(str(path))
    ran = subprocess.run(["promtool", "test", "rules", *paths], capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def run_cases(folder: Path, cases: Iterable[Case]) -> str:
    return promtool(folder, ((case.step, _test(case)) for case in cases))
