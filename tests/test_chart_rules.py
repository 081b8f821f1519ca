"""The chart's rules are the generator's, by default and with every value changed."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import STATIC, Manifest, one, render
from kvcache_alerts.model import Parameter
from kvcache_alerts.parameters import own
from kvcache_alerts.write import ALERTS, files

CHANGED = {
    "number": "7", "ratio": "0.45", "duration": "1h30m", "severity": "info", "edge": "0.3", "switch": "false",
}  # fmt: skip
"""A value of each kind that no parameter has by default."""


def groups_of_chart(**rule: Any) -> list[Manifest]:
    manifests = render(STATIC | {"prometheusRule": {"enabled": True, **rule}})
    return list(one(manifests, "PrometheusRule")["spec"]["groups"])


def groups_of_generator(overrides: dict[str, str]) -> list[Manifest]:
    made = files(overrides)
    return [g for name in ("recording", "alerting") for g in yaml.safe_load(made[f"{name}.yaml"])["groups"]]


def typed(parameter: Parameter, text: str) -> Any:
    return text if parameter.kind in ("duration", "severity") else json.loads(text)


def test_by_default_they_are_the_committed_ones() -> None:
    committed = Path(__file__).parents[1] / "alerts" / "generated"
    texts = [(committed / f"{name}.yaml").read_text() for name in ("recording", "alerting")]
    assert groups_of_chart() == [g for text in texts for g in yaml.safe_load(text)["groups"]]


@pytest.mark.parametrize("kind", sorted(CHANGED))
def test_each_value_lands_where_the_generator_puts_it(kind: str) -> None:
    """All parameters of one kind changed at once: a value in a wrong place would differ."""
    changed = [(a, p) for a in ALERTS for p in own(a) if p.kind == kind]
    assert changed
    alerts: dict[str, Manifest] = {}
    for alert, p in changed:
        alerts.setdefault(alert.name, {})[p.name] = typed(p, CHANGED[kind])
    overrides = {f"{a.name}.{p.name}": CHANGED[kind] for a, p in changed}
    made = groups_of_chart(alerts=alerts)
    assert made == groups_of_generator(overrides)
    assert made != groups_of_generator({})


@pytest.mark.parametrize("alert", ALERTS, ids=lambda a: a.name)
def test_values_of_an_alert_are_uniquely_named(alert: Any) -> None:
    """Every parameter its own value."""
    numbers = {p.name: f"0.{n}" for n, p in enumerate(alert.parameters, 101)}
    own_values = {p.name: CHANGED[p.kind] for p in alert.parameters if p.kind in ("edge", "severity")}
    durations = {p.name: f"{n}m" for n, p in enumerate(alert.parameters, 101) if p.kind == "duration"}
    chosen = numbers | own_values | durations
    alerts = {alert.name: {p.name: typed(p, chosen[p.name]) for p in alert.parameters}}
    overrides = {f"{alert.name}.{name}": text for name, text in chosen.items()}
    assert groups_of_chart(alerts=alerts) == groups_of_generator(overrides)


@pytest.mark.parametrize("value", ["1000000", "123456789", "0.000001", "0", "1e-05", "2.5"])
def test_numbers_mean_what_they_meant(value: str) -> None:
    (expected,) = (
        r["expr"] for g in groups_of_generator({"KVCacheWritesNotRead.floor": value})
        for r in g["rules"] if r.get("alert") == "KVCacheWritesNotRead"
    )  # fmt: skip
    alerts = {"KVCacheWritesNotRead": {"floor": float(value)}}
    (found,) = (
        r["expr"] for g in groups_of_chart(alerts=alerts)
        for r in g["rules"] if r.get("alert") == "KVCacheWritesNotRead"
    )  # fmt: skip
    numbers = [[float(n) for n in re.findall(r"> ([0-9.e+-]+)\)", text)] for text in (expected, found)]
    assert numbers[0] == numbers[1] != []


@pytest.mark.parametrize("keep", [[], ["cluster"], ["cluster", "region"]])
@pytest.mark.parametrize("selector", ["", 'job="kvcache", env=~"a|b"'])
def test_labels_selectors_and_addresses_are_passed_on(keep: list[str], selector: str, tmp_path: Path) -> None:
    made = groups_of_chart(
        keepLabels=keep,
        jobSelector=selector,
        interval="1m",
        runbookBase="https://wiki.example/kv/",
        dashboardBase="https://grafana.example",
        additionalRuleLabels={"team": "ml"},
    )
    overrides = {
        "keep_labels": ",".join(keep), "job_selector": selector, "interval": "1m", "extra_labels.team": "ml",
        "runbook_base": "https://wiki.example/kv/", "dashboard_base": "https://grafana.example",
    }  # fmt: skip
    assert made == groups_of_generator(overrides)
    check(made, tmp_path)


def check(groups: list[Manifest], folder: Path) -> None:
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups}))
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_own_rules_and_annotations_come_along(tmp_path: Path) -> None:
    rule = {"alert": "MyOwn", "expr": "vector(1) > 0", "for": "1m", "labels": {"severity": "info"}}
    made = groups_of_chart(rules=[rule], additionalRuleAnnotations={"channel": "#llm"})
    assert made[-1] == {"name": "kvcache-own", "interval": "30s", "rules": [rule]}
    alerts = [r for g in made[:-1] for r in g["rules"] if "alert" in r]
    assert {r["annotations"]["channel"] for r in alerts} == {"#llm"}
    check(made, tmp_path)


def test_a_label_of_the_rule_is_not_lost_to_an_additional_one() -> None:
    made = groups_of_chart(additionalRuleLabels={"severity": "none"})
    assert {r["labels"]["severity"] for g in made for r in g["rules"] if "alert" in r} >= {
        "critical",
        "warning",
    }


def test_a_group_without_rules_is_left_out() -> None:
    alerts = {a.name: {"enabled": False} for a in ALERTS}
    assert [g["name"] for g in groups_of_chart(alerts=alerts)] == ["kvcache-recording"]


@pytest.mark.parametrize("off", [None, {"enabled": False}])
def test_an_alert_can_be_taken_out(off: Manifest | None) -> None:
    made = groups_of_chart(alerts={"KVCacheUsageHigh": off})
    assert made == groups_of_generator({"KVCacheUsageHigh.enabled": "false"})


def test_numbers_may_come_as_texts_as_set_on_the_command_line_makes_them() -> None:
    numbers = {"KVCacheUsageHigh": {"usage": 0.9}, "KVCacheTTFTBudgetBurn": {"objective": 0.5, "burn": 3.5}}
    texts = {alert: {name: str(value) for name, value in of.items()} for alert, of in numbers.items()}
    assert groups_of_chart(alerts=texts) == groups_of_chart(alerts=numbers) != groups_of_chart()


def test_the_configmap_holds_the_same_rules() -> None:
    on = {"prometheusRule": {"enabled": True}, "rulesConfigMap": {"enabled": True}}
    manifests = render(STATIC | on)
    (text,) = (
        m["data"]["kvcache.rules.yaml"] for m in manifests if "kvcache.rules.yaml" in m.get("data", {})
    )
    assert yaml.safe_load(text)["groups"] == one(manifests, "PrometheusRule")["spec"]["groups"]
