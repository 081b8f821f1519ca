"""values.yaml: each value does something, is documented and checked, and what is generated is fresh."""

import json
import re
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import pytest
import yaml

from chart import CHART, STATIC, Manifest, merged, one, render, rendered_files
from chart_samples import CLAIM, MONITOR, PASSWORD, POD_MONITOR, RELOADER, SAMPLES, STATEFUL, TLS
from kvcache_chart.files import files
from kvcache_chart.readme import documented
from manifest_schemas import KUBERNETES, problems

VALUES = (CHART / "values.yaml").read_text()
DEFAULTS: Manifest = yaml.safe_load(VALUES)
DOCUMENTED = {value.path for value in documented(VALUES)}
ALERTS = ("prometheusRule", "alerts")


# Of a StatefulSet that exists Kubernetes changes nothing but these.
MUTABLE = {
    "replicas", "template", "updateStrategy", "minReadySeconds", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
}  # fmt: skip
NAMES = {"nameOverride", "fullnameOverride", "namespaceOverride", "kind"}
CLAIMS = {f"persistence.{key}" for key in ("enabled", "size", "storageClass", "accessModes", "annotations")}


@pytest.mark.parametrize("path", sorted(set(SAMPLES) - NAMES - {"persistence.existingClaim"}))
def test_a_release_can_be_upgraded_to_any_value(path: str) -> None:
    """A selector, the same for every kind, is fixed, and most of a StatefulSet; docs/install.md says so."""
    value, needed = SAMPLES[path]
    base = merged(STATIC, needed, STATEFUL)
    changed = merged(base, nested(tuple(path.split(".")), value))
    before, after = (one(render(values), "StatefulSet")["spec"] for values in (base, changed))
    assert before["selector"] == after["selector"]
    fixed = [{key: part for key, part in spec.items() if key not in MUTABLE} for spec in (before, after)]
    assert (fixed[0] != fixed[1]) == (path in CLAIMS)


def nested(path: tuple[str, ...], value: Any) -> Manifest:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def leaves(values: Manifest, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of what is not a mapping, or is an empty one."""
    found = []
    for key, value in values.items():
        path = (*above, key)
        found += leaves(value, path) if isinstance(value, dict) and value else [path]
    return found


def test_every_value_is_documented() -> None:
    for path in leaves(DEFAULTS):
        assert any(path[:depth] in DOCUMENTED for depth in range(1, len(path) + 1)), path


def test_every_documented_value_has_a_sample() -> None:
    below = {p for p in DOCUMENTED if p[: len(ALERTS)] == ALERTS and p != ALERTS}
    assert {".".join(path) for path in DOCUMENTED - below} == set(SAMPLES)


@pytest.mark.parametrize("path", SAMPLES)
def test_every_value_changes_what_is_rendered(path: str) -> None:
    value, needed = SAMPLES[path]
    base = merged(STATIC, needed)
    changed = merged(base, nested(tuple(path.split(".")), value))
    assert rendered_files(changed) != rendered_files(base)


def may_not_be_missing(path: str) -> bool:
    schema = json.loads((CHART / "values.schema.json").read_text())
    *above, name = path.split(".")
    for key in above:
        schema = schema["properties"][key]
    return name in schema.get("required", ())


# Without which what they belong to is refused.
ASKED_FOR = {
    "config": "found nothing to do",
    "web.tls.existingSecret": "set web.tls.existingSecret",
    "web.basicAuth.existingSecret": "set web.basicAuth.existingSecret",
    "grafanaPublish.url": "grafanaPublish.url: needed",
    "grafanaPublish.existingSecret": "grafanaPublish.existingSecret: needed",
}
MISSED = {
    path: f"missing property '{path.rpartition('.')[2]}'" for path in SAMPLES if may_not_be_missing(path)
}


def without(path: str) -> Manifest:
    return merged(STATIC, SAMPLES[path][1], nested(tuple(path.split(".")), None))


@pytest.mark.parametrize(("path", "said"), (MISSED | ASKED_FOR).items())
def test_a_value_that_is_needed_cannot_be_set_to_null(path: str, said: str) -> None:
    with pytest.raises(helm_python.HelmError) as raised:
        render(without(path))
    assert said in str(raised.value)


@pytest.mark.parametrize("path", sorted(set(SAMPLES) - set(MISSED) - set(ASKED_FOR)))
def test_any_other_value_set_to_null_is_as_if_it_were_empty(path: str) -> None:
    manifests = render(without(path))
    assert [problem for manifest in manifests for problem in problems(manifest, KUBERNETES[-1])] == []
    assert not re.search(r"%!|<nil>", json.dumps(manifests))


SECTIONS = sorted({path.rpartition(".")[0] for path in SAMPLES if "." in path} - {"global"})


@pytest.mark.parametrize("path", SECTIONS)
def test_a_section_set_to_null_is_refused_by_name(path: str) -> None:
    with pytest.raises(helm_python.HelmError, match=f"missing property '{path.rpartition('.')[2]}'"):
        render(merged(STATIC, nested(tuple(path.split(".")), None)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"serviceMonitr": {}}, "additional properties 'serviceMonitr' not allowed"),
        ({"serviceMonitor": {"enabeld": True}}, "additional properties 'enabeld' not allowed"),
        ({"config": {"target": []}}, "additional properties 'target' not allowed"),
        (
            {"config": {"targets": [{"kubernetes": {"selectr": "a"}}]}},
            "'/config/targets/0/kubernetes': additional properties 'selectr' not allowed",
        ),
        ({"config": {"requests": [{"otlp": {"jion": "a"}}]}}, "additional properties 'jion' not allowed"),
        ({"config": {"targets": [{"bearer_token": "s3cret"}]}}, "properties 'bearer_token' not allowed"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHigh": {"treshold": 1}}}}, "'treshold' not allowed"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHi": {}}}}, "'KVCacheUsageHi' not allowed"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHigh": {"usage": 95}}}}, "maximum: got 95, want 1"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHigh": {"usage": "95"}}}}, "not match pattern"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHigh": {"waiting": "few"}}}}, "not match pattern"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHigh": {"for": "5 minutes"}}}}, "not match pattern"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHigh": {"severity": "page"}}}}, "value must be one of"),
        ({"prometheusRule": {"alerts": {"KVCacheTTFTBudgetBurn": {"objective": 0.8}}}}, "must be one of"),
        ({"prometheusRule": {"keepLabels": "cluster"}}, "got string, want array"),
        ({"prometheusRule": {"jobSelector": 'job="a"} or up{'}}, "does not match pattern"),
        ({"kind": "Deploymint"}, "value must be one of 'Deployment', 'StatefulSet', 'DaemonSet'"),
        ({"image": {"digest": "sha256:abc"}}, "does not match pattern"),
        ({"service": {"port": "http"}}, "got string, want integer"),
        ({"service": {"portName": "a-name-that-is-too-long"}}, "maxLength"),
        ({"web": {"tls": {"minVersion": "TLS11"}}}, "value must be one of 'TLS12', 'TLS13'"),
        ({"log": {"level": "trace"}}, "value must be one of"),
        ({"extraSecretMounts": [{"name": "a"}]}, "missing property 'secretName'"),
        ({"serviceMonitor": {"interval": "15 s"}}, "does not match pattern"),
        ({"dashboards": {"grafanaOperator": {"resyncPeriod": "1d"}}}, "does not match pattern"),
        ({"livenessProbe": {"httpGet": {}}}, "additional properties 'httpGet' not allowed"),
        ({"replicaCount": 2}, "two replicas would both scrape every engine"),
        ({"replicaCount": 2, **STATEFUL}, "set 1, and kind: StatefulSet with shard.count"),
        ({"fullnameOverride": "9a"}, "'/fullnameOverride': '9a' does not match pattern"),
        ({"service": {"portName": "9409"}}, "'/service/portName': '9409' does not match pattern"),
        (merged(TLS, POD_MONITOR, {"podMonitor": {"namespace": "x"}}), "reads Secrets of its own namespace"),
        ({"shard": {"count": 2}}, "set kind: StatefulSet, or shard.count: 1"),
        (merged(STATIC, {"config": {"shard": {"count": 2}}}), "nobody would scrape the other shares"),
        ({"config": {"targets": None}}, "found nothing to do; set config.targets"),
        ({"config": {"targets": []}}, "found nothing to do; set config.targets"),
        ({"kind": "DaemonSet"}, "every pod of a DaemonSet would scrape all engines"),
        ({"kind": "DaemonSet", **CLAIM, **STATIC}, "cannot share one claim"),
        ({"kind": "StatefulSet", "persistence": {"existingClaim": "a"}}, "has a claim of its own"),
        ({"web": {"tls": {"enabled": True}}}, "set web.tls.existingSecret"),
        ({"web": {"tls": {"clientAuthType": "VerifyClientCertIfGiven", "caKey": ""}}}, "web.tls.caKey"),
        ({"web": {"basicAuth": {"enabled": True}}}, "set web.existingSecret"),
        (merged(PASSWORD, RELOADER), "it cannot log in"),
        ({"prometheusRule": {"alerts": {"KVCacheUsageHigh": {"usage": None}}}}, "missing property 'usage'"),
        (merged(MONITOR, PASSWORD, {"web": {"basicAuth": {"existingSecret": ""}}}), "be refused (401)"),
        (merged(POD_MONITOR, {"podMonitor": {"interval": "5s"}}), "10s is longer than the interval of 5s"),
        (merged(MONITOR, POD_MONITOR), "scrape the exporter twice"),
        (merged(MONITOR, {"service": {"enabled": False}}), "use podMonitor"),
        ({"grafanaPublish": {"enabled": True}}, "grafanaPublish.url: needed"),
        ({"config": {"targets": [{"static": ["{{ .Values.nope.deep }}"]}]}}, "nil pointer"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_message(values: Manifest, said: str) -> None:
    with pytest.raises(helm_python.HelmError) as raised:
        render(values)
    assert said in str(raised.value)


def test_a_parent_chart_may_switch_it_and_share_values() -> None:
    assert render(merged(STATIC, {"enabled": True, "global": {"x": 1}})) == render(STATIC)


def test_texts_of_the_configuration_are_templates() -> None:
    text = rendered_files(namespace="llm")["templates/configmap.yaml"]
    assert "- llm\n" in text
    assert "{{" not in text


def test_the_schema_is_one_and_the_defaults_fit() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator(schema).validate(DEFAULTS)


def test_descriptions_are_those_of_the_value_itself() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    for value in documented(VALUES):
        part = schema
        for key in value.path:
            part = part["properties"][key]
        assert part["description"] == value.about


def test_objects_are_closed_unless_kubernetes_gives_their_shape() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    open_ones = set()

    def walk(part: Any, above: str) -> None:
        if isinstance(part, dict):
            if part.get("type") == "object" and part.get("additionalProperties") is None:
                open_ones.add(above)
            for key, child in part.get("properties", {}).items():
                walk(child, f"{above}.{key}".lstrip("."))

    walk(schema, "")
    assert open_ones == {
        "global", "configReloader.resources", "resources", "updateStrategy", "dnsConfig", "affinity",
        "serviceMonitor.tlsConfig", "serviceMonitor.basicAuth.username", "serviceMonitor.basicAuth.password",
        "podMonitor.tlsConfig", "podMonitor.basicAuth.username", "podMonitor.basicAuth.password",
        "networkPolicy.monitoringNamespaceSelector", "networkPolicy.monitoringPodSelector",
    }  # fmt: skip


GENERATED = files(CHART)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_files_are_fresh(name: str) -> None:
    assert Path(CHART, name).read_text() == GENERATED[name], "run `make generate`"


def test_the_readme_names_every_example() -> None:
    text = (CHART / "README.md").read_text()
    for path in CHART.glob("examples/*"):
        assert f"(examples/{path.name})" in text


def test_the_readme_has_a_row_for_every_value() -> None:
    text = (CHART / "README.md").read_text()
    for path in SAMPLES:
        assert text.count(f"\n| `{path}` |") == 1
