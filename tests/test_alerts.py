"""Every alert is complete, its names exist, its expressions parse, and generated files are fresh."""

import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from kvcache_alerts.document import document
from kvcache_alerts.exporter import SCRAPED
from kvcache_alerts.model import SEVERITIES, Alert
from kvcache_alerts.recording import RULES
from kvcache_alerts.write import ALERTS, files
from kvcache_exporter.catalogue import CATALOGUE, SECONDS_BUCKETS
from test_alerts_cases import CASES

ROOT = Path(__file__).parents[1]
_PARTS = {"histogram": ("_bucket", "_count", "_sum")}
RAW = {m.name + part: m for m in CATALOGUE for part in _PARTS.get(m.kind, ("",))}
RECORDED = {rule.record for rule in RULES}
# Labels that Prometheus or the user's own relabelling gives.
_OUTSIDE = {"cluster", "job", "instance", "le"}
_ABOUT_THE_PROCESS = {"process_cpu_seconds_total", SCRAPED}


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


DEFAULT = files({})
ALERTING, RECORDING = _rules(DEFAULT["alerting.yaml"]), _rules(DEFAULT["recording.yaml"])
BY_NAME = {alert.name: alert for alert in ALERTS}


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), pre_visit=visit)
    return found


NAMES = (
    "PreemptionSpike EvictionPressure Thrashing UsageHigh TokenHitRatioDropped RequestHitRatioDropped "
    "HitRatiosDiverge MissTTFTHigh TTFTBudgetBurn ColdStartSlow ReplicaImbalance PrefixCachingDisabled "
    "WritesNotRead TargetDown TargetsMissing AdapterDrift DataAnomaly LogStalled LogParseFailures EventsLost "
    "ExporterDown ExporterConfigReloadFailed ExporterSeriesDropped"
)


def test_the_set_of_alerts_is_the_designed_one() -> None:
    assert sorted(BY_NAME) == sorted(f"KVCache{name}" for name in NAMES.split())


@pytest.mark.parametrize("alert", ALERTS, ids=lambda a: a.name)
class TestEachAlert:
    def test_has_a_case_that_fires_and_one_that_stays_silent(self, alert: Alert) -> None:
        cases = [case for case in CASES if case.alert == alert.name]
        assert any(case.fires for case in cases)
        assert any(not case.fires for case in cases)
        assert len({case.rule for case in cases}) == len(cases)

    def test_every_condition_is_proved_to_fire(self, alert: Alert) -> None:
        severities = {fires.severity for case in CASES if case.alert == alert.name for fires in case.fires}
        assert severities == {r["labels"]["severity"] for r in ALERTING if r["alert"] == alert.name}

    def test_has_a_runbook_that_gives_queries_a_board_and_flags(self, alert: Alert) -> None:
        text = (ROOT / "alerts" / "runbooks" / f"{alert.name}.md").read_text()
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert headings == [alert.name, "Meaning", "Impact", "Diagnosis", "Mitigation", "False alarms"]
        assert f"`{alert.board}`" in text
        assert text.count("```promql") == 1
        for section in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
            assert section.strip()

    def test_runbook_queries_name_only_what_exists(self, alert: Alert) -> None:
        text = (ROOT / "alerts" / "runbooks" / f"{alert.name}.md").read_text()
        (block,) = re.findall(r"```promql\n(.*?)```", text, re.DOTALL)
        inline = re.findall(r"`([^`\n]*[({][^`\n]*)`", text.replace(block, ""))
        queries = [*block.splitlines(), *(q for q in inline if re.search(r"kvcache_\w+[{\[]|_model:", q))]
        for query in queries:
            _check_names(query)

    def test_has_a_row_in_the_documentation(self, alert: Alert) -> None:
        rows = (ROOT / "docs" / "alerts.md").read_text().splitlines()
        assert len([row for row in rows if row.startswith(f"| [{alert.name}]")]) == 1

    def test_text_is_one_sentence_and_a_description_with_values(self, alert: Alert) -> None:
        assert re.fullmatch(r"[A-Z][^.]*[a-z]\.|kvcache-exporter [^.]*\.", alert.summary)
        assert "{{" not in alert.summary
        assert "$value" in alert.description
        assert "$labels" in alert.description or alert.name == "KVCacheTargetsMissing"
        assert alert.description.endswith((".", "."))

    def test_parameters_are_all_used_and_explained(self, alert: Alert) -> None:
        names = [p.name for p in alert.parameters]
        assert len(set(names)) == len(names)
        used = alert.description + "".join(c.expr for c in alert.conditions)
        for p in alert.parameters:
            assert re.fullmatch(r"[A-Z0-9].*\.", p.why), p
            if not p.name.endswith(("for", "severity")):
                assert re.search(rf"\${p.name}\b|\${p.name}_(seconds|edge)\b", used), p.name


@pytest.mark.parametrize("rule", ALERTING, ids=lambda r: f"{r['alert']}-{r['labels']['severity']}")
def test_each_alerting_rule_is_complete(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+[smhd]", rule["for"])
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert rule["annotations"]["runbook_url"].endswith(f"/alerts/runbooks/{rule['alert']}.md")
    assert not re.search(r"(?<!\{)\{\w+\}(?!\})", rule["annotations"]["description"])
    assert "hit:ratio" not in rule["expr"] or rule["labels"]["severity"] != "critical"


def test_expressions_read_only_series_that_exist_with_labels_they_have() -> None:
    """By the grammar of Prometheus 3; promtool proves that of 2.42."""
    for rule in (*ALERTING, *RECORDING):
        _check_names(rule["expr"])


def _check_names(expression: str) -> None:
    text = re.sub(r"\$(\w+)", r"\1", expression)
    for selector in selectors(text):
        assert selector.name in RAW or selector.name in RECORDED | _ABOUT_THE_PROCESS, expression
        if metric := RAW.get(selector.name):
            unknown = {m.name for m in selector.matchers.matchers} - set(metric.labels) - _OUTSIDE
            assert not unknown, expression


def test_queries_inside_descriptions_parse_and_read_what_exists() -> None:
    calls = [
        q for r in ALERTING for q in re.findall(r"printf `([^`]*\{[^`]*)`", r["annotations"]["description"])
    ]
    assert len(calls) >= 5
    for call in calls:
        _check_names(call.replace("%q", '"x"'))


def test_grouping_uses_only_labels_of_the_catalogue() -> None:
    known = {label for metric in CATALOGUE for label in metric.labels} | _OUTSIDE
    for rule in (*ALERTING, *RECORDING):
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert set(filter(None, group.split(", "))) <= known, rule


def test_recorded_series_are_recorded_before_they_are_read() -> None:
    seen: set[str] = set()
    for rule in RECORDING:
        assert {s.name for s in selectors(rule["expr"])} & RECORDED <= seen, rule["record"]
        seen.add(rule["record"])
    assert len(seen) == len(RECORDING)
    for name in seen:
        assert re.fullmatch(
            r"(target_model|model|source_model):kvcache_[a-z0-9_]+:(ratio_)?(rate5m|max|sum)", name
        )


def test_promtool_finds_no_fault_in_the_rules() -> None:
    paths = [ROOT / "alerts" / "generated" / name for name in DEFAULT]
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", *map(str, paths)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", DEFAULT)
def test_generated_rules_are_fresh(name: str) -> None:
    assert (ROOT / "alerts" / "generated" / name).read_text() == DEFAULT[name]


def test_documentation_is_fresh() -> None:
    assert (ROOT / "docs" / "alerts.md").read_text() == document()


def test_rules_use_nothing_that_other_servers_lack() -> None:
    text = "".join(DEFAULT.values())
    for refused in ("keep_firing_for", "query_offset", "holt_winters", "limitk", "histogram_avg", "info("):
        assert refused not in text
    assert all(
        set(g) == {"name", "interval", "rules"} for g in yaml.safe_load(DEFAULT["alerting.yaml"])["groups"]
    )


class TestOverrides:
    def test_each_value_lands_where_it_belongs(self) -> None:
        texts = files(
            {
                "KVCachePreemptionSpike.floor": "0.7",
                "KVCachePreemptionSpike.for": "7m",
                "KVCachePreemptionSpike.severity": "info",
                "KVCacheAdapterDrift.enabled": "false",
                "extra_labels.team": "ml",
                "runbook_base": "https://wiki.example/kv/",
                "dashboard_base": "https://grafana.example",
            }
        )
        rules = _rules(texts["alerting.yaml"])
        spike = next(r for r in rules if r["alert"] == "KVCachePreemptionSpike")
        assert "> 0.7 and" in spike["expr"]
        assert spike["for"] == "7m"
        assert spike["labels"] == {"severity": "info", "team": "ml"}
        assert spike["annotations"]["runbook_url"] == "https://wiki.example/kv/KVCachePreemptionSpike.md"
        assert spike["annotations"]["dashboard_url"].startswith("https://grafana.example/d/kvcache-pressure?")
        assert all(r["labels"]["team"] == "ml" for r in rules)
        assert "KVCacheAdapterDrift" not in texts["alerting.yaml"]

    @pytest.mark.parametrize("keep", ["", "cluster", "cluster,region"])
    @pytest.mark.parametrize("selector", ["", 'job="kvcache", env=~"a|b"'])
    def test_selectors_and_kept_labels_give_valid_rules(
        self, tmp_path: Path, keep: str, selector: str
    ) -> None:
        texts = files({"keep_labels": keep, "job_selector": selector})
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
            for rule in _rules(text):
                for found in selectors(rule["expr"]):
                    ours = found.name in RAW
                    assert ours == ("env" in {m.name for m in found.matchers.matchers}) or not selector
        command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", *map(str, tmp_path.iterdir())]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr

    @pytest.mark.parametrize(
        ("key", "value", "said"),
        [
            ("KVCachePreemptionSpike.flor", "1", "KVCachePreemptionSpike has floor, factor"),
            ("KVCachePremptionSpike.floor", "1", "did you mean KVCachePreemptionSpike"),
            ("colour", "red", "there are runbook_base"),
            ("KVCachePreemptionSpike.floor", "-1", "a number from 0"),
            ("KVCachePreemptionSpike.floor", "nan", "a number from 0"),
            ("KVCachePreemptionSpike.for", "5 minutes", "a Prometheus duration"),
            ("KVCachePreemptionSpike.severity", "page", "one of critical, warning, info"),
            ("KVCachePreemptionSpike.enabled", "no", "true or false"),
            ("KVCacheUsageHigh.usage", "95", "from 0 to 1"),
            ("KVCacheTTFTBudgetBurn.objective", "0.8", "0.5, 0.75, 1, 1.5"),
            ("job_selector", 'job="a"} or up{', "matchers"),
            ("keep_labels", "a-b", "label names"),
            ("runbook_base", "wiki", "http://"),
            ("extra_labels.severity", "x", "cannot be a label"),
            ("extra_labels.a-b", "x", "cannot be a label"),
        ],
    )
    def test_what_cannot_be_is_refused_with_advice(self, key: str, value: str, said: str) -> None:
        with pytest.raises(ValueError, match=re.escape(key)) as raised:
            files({key: value})
        assert said in str(raised.value)

    @pytest.mark.parametrize("edge", [f"{edge:g}" for edge in SECONDS_BUCKETS])
    def test_every_bucket_edge_can_be_the_objective(self, edge: str) -> None:
        text = files({"KVCacheTTFTBudgetBurn.objective": edge})["alerting.yaml"]
        (pattern,) = set(re.findall(r'le=~"(\d[^"]*)"', text))
        assert re.fullmatch(pattern, edge)
        assert re.fullmatch(pattern, repr(float(edge)))
        assert not re.fullmatch(pattern, edge + "5")
