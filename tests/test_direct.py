"""Rules over raw pages make what the exporter makes: on a page of every engine version, value by value."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from alert_cases import promtool, write_test
from direct_pages import Target, collected, expected, input_series
from kvcache_alerts.parameters import DIRECT
from kvcache_alerts.write import ALERTS, files
from kvcache_exporter import catalogue as c
from kvcache_exporter.cli import main
from kvcache_exporter.direct import direct_rules
from kvcache_exporter.direct.document import EFFECTS, document, lacking
from kvcache_exporter.direct.left_out import AREAS, DIFFERENT, LEFT_OUT
from kvcache_exporter.engines import ENGINES
from test_alerts import selectors

FIXTURES = Path(__file__).parent / "fixtures"
DOCS = Path(__file__).parents[1] / "docs"
PAGES = {path.name: path / "page.prom" for path in sorted((FIXTURES / "engines").iterdir())}
TEXTS = files({}, direct_rules)
RULES = yaml.safe_load(TEXTS["direct.yaml"])["groups"][0]["rules"]
MADE = {rule["record"] for rule in RULES if rule["record"].startswith(c.PREFIX)}
# Of Prometheus' own scrape, which these tests do not have.
SCRAPE = {c.TARGET_SCRAPE_DURATION.name, c.TARGET_LAST_SUCCESS.name, c.AGE.name}


def _written(folder: Path, texts: Mapping[str, str]) -> list[str]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return list(texts)


# Whatever names a target: the scrape's address, or its labels as the exporter names pods.
NAMINGS = {"instance": "replica-0:8000", "namespace,pod": "prod/replica-0"}


def _test(name: str, page: bytes, target_name: str) -> dict[str, Any]:
    target = Target([page], more={"pod": "replica-0"})
    wanted = expected(collected(target, target_name))
    if name.startswith("vllm"):
        # A vLLM page says its capacity by labels.
        assert wanted.pop(c.CAPACITY_TOKENS.name, None) is not None or "0.8.5" in name or "connectors" in name
        wanted.pop(c.USED_TOKENS.name, None)
    checks = [
        {
            "expr": metric,
            "eval_time": "0s",
            "exp_samples": [{"labels": k, "value": v} for k, v in wanted.get(metric, {}).items()],
        }
        for metric in sorted(MADE - SCRAPE)
    ]
    return {
        "name": name,
        "interval": "15s",
        "input_series": input_series([target]),
        "promql_expr_test": checks,
    }


@pytest.mark.parametrize("target_label", NAMINGS)
def test_a_page_of_every_engine_version_gives_the_exporters_series(tmp_path: Path, target_label: str) -> None:
    texts = files({"target_label": target_label}, direct_rules)
    rules = _written(tmp_path, {"direct.yaml": texts["direct.yaml"]})
    paths = []
    for name, page in PAGES.items():
        tests = {
            "rule_files": rules,
            "evaluation_interval": "15s",
            "tests": [_test(name, page.read_bytes(), NAMINGS[target_label])],
        }
        paths.append(write_test(tmp_path / f"{name}.test.yaml", tests))
    assert not promtool(paths)


def test_nothing_the_exporter_reads_from_pages_is_forgotten() -> None:
    """Each metric is made, or it is said why it is not."""
    recorded = {metric for metric in c.CATALOGUE if {metric.name, f"{metric.name}_bucket"} & MADE}
    assert {m for m in c.CATALOGUE if m.area in AREAS} == recorded | set(LEFT_OUT)
    assert not recorded & set(LEFT_OUT)
    assert set(DIFFERENT) <= recorded


def test_every_alert_that_lacks_something_says_what_becomes_of_it() -> None:
    assert {alert.name for alert in ALERTS if lacking(alert)} == set(EFFECTS)


def test_the_documentation_is_fresh() -> None:
    text = (DOCS / "direct.md").read_text()
    assert document(text) == text


def test_the_rules_are_the_expected_ones(golden: Callable[[Path, str], None]) -> None:
    golden(FIXTURES / "direct" / "direct.yaml", TEXTS["direct.yaml"])


def _checked(folder: Path, texts: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    names = _written(folder, texts)
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", *names]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_label": "namespace, pod", "keep_labels": "", "engine_selector": 'job=~"a|b", stage="live"'},
        *({"engines": engine.name} for engine in ENGINES),
    ],
    ids=str,
)
def test_promtool_accepts_the_rules_whatever_is_chosen(tmp_path: Path, settings: dict[str, str]) -> None:
    checked = _checked(tmp_path, files(settings, direct_rules))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_all_names_of_an_engine_come_from_its_own_prefixes() -> None:
    text = files({"engines": "sglang"}, direct_rules)["direct.yaml"]
    assert "sglang:" in text
    assert "vllm" not in text.replace("kvcache_exporter", "")


class TestCommand:
    def test_it_writes_the_usual_files_too_and_turns_one_alert_off(self, tmp_path: Path) -> None:
        out = ["--out", str(tmp_path)]
        assert main(["generate", "rules", "--direct", *out]) == 0
        assert {path.name for path in tmp_path.iterdir()} == {
            "direct.yaml",
            "recording.yaml",
            "alerting.yaml",
        }
        assert (tmp_path / "recording.yaml").read_text() == files({})["recording.yaml"]
        off = _names(files({})["alerting.yaml"]) - _names((tmp_path / "alerting.yaml").read_text())
        assert off == {"KVCacheExporterDown"}
        asked = ["--set", "KVCacheExporterDown.enabled=true", "--set", "interval=15s"]
        assert main(["generate", "rules", "--direct", *out, *asked]) == 0
        assert "KVCacheExporterDown" in _names((tmp_path / "alerting.yaml").read_text())
        assert "interval: 15s\n" in (tmp_path / "direct.yaml").read_text()

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (["dashboards", "--direct"], "--direct: applies to rules only"),
            (["rules", "--set", "target_label=pod"], "--set: target_label: unknown parameter"),
            (["rules", "--direct", "--set", "engines=vlm"], "--set: engines: no table for vlm; there are"),
            (["rules", "--direct", "--set", "target_label="], "--set: target_label: name at least one"),
            (["rules", "--direct", "--set", "target_label=a-b"], "--set: target_label: 'a-b' is not"),
            (["rules", "--direct", "--set", "keep_labels=job"], "--set: keep_labels: job tells"),
            (["rules", "--direct", "--set", "engine_selector=x"], "--set: engine_selector: 'x' is not"),
        ],
    )
    def test_what_cannot_be_is_bad_usage(
        self, arguments: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["generate", *arguments, "--out", str(tmp_path / "out")]) == 2
        assert capsys.readouterr().err.startswith(f"kvcache-exporter: {error}")
        assert not (tmp_path / "out").exists()

    def test_publish_brings_them_too(self, tmp_path: Path) -> None:
        path = tmp_path / "kvcache.yaml"
        assert main(["publish", "prometheus", "--file", str(path), "--direct", "--set", "engines=vllm"]) == 0
        groups = [group["name"] for group in yaml.safe_load(path.read_text())["groups"]]
        assert groups[:2] == ["kvcache-direct", "kvcache-recording"]


def _names(text: str) -> set[str]:
    return {rule["alert"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}


def test_parameters_are_explained() -> None:
    text = (DOCS / "direct.md").read_text()
    assert all(f"| `{p.name}` |" in text for p in DIRECT)


def test_series_of_a_scraped_exporter_are_not_taken_for_made_ones() -> None:
    """What a rule reads of another rule has no job; the exporter's page has one."""
    found = [(str(s.name), str(s.matchers)) for rule in RULES for s in selectors(rule["expr"])]
    made = [matchers for name, matchers in found if name in MADE or c.PREFIX in matchers]
    assert len(made) > 20
    assert all('job=""' in matchers for matchers in made)
