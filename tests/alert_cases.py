"""Compact cases for `promtool test rules`: series in, alerts out, with every label and annotation."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
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


def run_cases(folder: Path, cases: Iterable[Case]) -> str:
    """What promtool says, empty if all hold; one file for each alert, evaluated with this alert alone."""
    by_alert: dict[tuple[str, int], list[Case]] = {}
    for case in cases:
        by_alert.setdefault((case.alert, case.step), []).append(case)
    paths = [_write(folder, alert, group) for (alert, _), group in by_alert.items()]
    return promtool(paths)


def run_recording(
    folder: Path, series: Mapping[str, str], recorded: Mapping[str, Mapping[str, float]]
) -> str:
    """What promtool says of the values, by record and labels, after 15 minutes of a sample a minute."""
    checks = [
        {
            "expr": record,
            "eval_time": "15m",
            "exp_samples": [{"labels": f"{record}{{{k}}}", "value": value} for k, value in values.items()],
        }
        for record, values in recorded.items()
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": checks}
    document = {"rule_files": write_rules(folder, {}), "evaluation_interval": "1m", "tests": [test]}
    return promtool([write_test(folder / "recording.test.yaml", document)])


def _write(folder: Path, alert: str, cases: list[Case]) -> Path:
    others = {f"{a.name}.enabled": "false" for a in ALERTS if a.name != alert}
    step = cases[0].step
    document = {
        "rule_files": write_rules(folder, others, prefix=f"{alert}-"),
        "evaluation_interval": "1m" if step == 1 else "10m",
        "tests": [_test(case) for case in cases],
    }
    return write_test(folder / f"{alert}-{step}.test.yaml", document)


def write_rules(folder: Path, overrides: Mapping[str, str], prefix: str = "") -> list[str]:
    texts = files(overrides)
    for name, text in texts.items():
        folder.joinpath(prefix + name).write_text(text)
    return [prefix + name for name in texts]


def write_test(path: Path, document: Mapping[str, object]) -> Path:
    path.write_text(yaml.safe_dump(document, width=1000))
    return path


def promtool(tests: Sequence[Path]) -> str:
    """Two at a time: promtool itself uses one core."""
    halves = [tests[start::2] for start in (0, 1) if tests[start::2]]
    running = [
        subprocess.Popen(
            ["promtool", "test", "rules", *map(str, half)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for half in halves
    ]
    said = [process.communicate()[0] for process in running]
    return "".join(text for process, text in zip(running, said, strict=True) if process.returncode)
