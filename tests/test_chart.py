"""The chart as Helm renders it, for every values file it ships: what Kubernetes would see."""

import json
import re
import tarfile
from pathlib import Path

import helm_python
import pytest
import yaml

from chart import (
    CHART,
    SIDECAR,
    STATIC,
    VALUES_FILES,
    everything,
    merged,
    one,
    pod_specs,
    render,
    rendered_files,
    values_of,
    workload,
)
from chart_samples import (
    ANNOTATED,
    BOARDS,
    BUDGET,
    CLAIM,
    MONITOR,
    OPERATOR,
    POLICY,
    PUBLISH,
    RELOADER,
    RULES,
    RULES_FILE,
    TLS,
)
from kvcache_exporter import __version__
from manifest_schemas import KUBERNETES, problems, violations

ROOT = CHART.parents[1]
ALL = everything()


def test_lint_finds_nothing_even_where_it_is_strict() -> None:
    for path in (None, *VALUES_FILES):
        report = helm_python.lint(
            CHART, values_of(path) if path else None, strict=True, kube_version="v1.31.0"
        )
        assert not report["errors"], path
        assert [m["error"] for m in report["messages"] if m["severity"] >= 2] == [], path


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_one_that_kubernetes_accepts(version: str) -> None:
    """Strictly: an unknown field is an error."""
    unique = {json.dumps(m, sort_keys=True): m for manifests in ALL.values() for m in manifests}
    assert len(unique) > 100
    for manifest in (*unique.values(), *yaml.safe_load_all(SIDECAR.read_text())):
        assert problems(manifest, version) == []


def test_the_judges_see_what_is_wrong() -> None:
    good = render(STATIC | {"serviceMonitor": {"enabled": True}})
    deployment, monitor = one(good, "Deployment"), one(good, "ServiceMonitor")
    spec = deployment["spec"]["template"]["spec"]
    spec["containers"][0]["imagePullPolcy"] = "Always"
    monitor["spec"]["endpoints"][0] |= {"interval": "15 sec", "prt": "metrics"}
    board = one(ALL["dashboards-values"], "GrafanaDashboard")
    assert problems(board, "1.37") == []
    assert len(problems({**board, "spec": {"resyncPeriod": "1d", "foldr": "a"}}, "1.37")) == 3
    assert problems(deployment, "1.37")
    assert len(problems(monitor, "1.37")) == 2
    spec["containers"][0]["securityContext"] = {}
    assert {text.partition(": ")[2] for text in violations(spec)} == {
        "allowPrivilegeEscalation", "capabilities",
    }  # fmt: skip


# They say themselves that they need more: log files of the node, and its network.
PRIVILEGED = {"node-logs", "daemonset-values", "scheduling-values"}


@pytest.mark.parametrize("name", sorted(ALL))
def test_pods_fit_pod_security_restricted(name: str) -> None:
    found = [problem for spec in pod_specs(ALL[name]).values() for problem in violations(spec)]
    assert bool(found) == (name in PRIVILEGED), found


def test_containers_write_nowhere_but_to_their_volumes() -> None:
    for manifests in ALL.values():
        for spec in pod_specs(manifests).values():
            ours = [c for c in spec["containers"] if not c["image"].startswith("busybox")]
            assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in ours)
            assert all(c["resources"]["requests"] for c in ours)


@pytest.mark.parametrize("name", sorted(set(ALL) - {"defaults"}))
def test_every_values_file_changes_something(name: str) -> None:
    base = render() if name.startswith(("network-policy", "existing-config")) else render(STATIC)
    assert ALL[name] != base or name == "static-values"


def test_rendering_twice_gives_the_same() -> None:
    for path in VALUES_FILES:
        assert render(values_of(path)) == ALL[path.stem]


def test_resources_are_uniquely_named_and_named_within_63_characters() -> None:
    for release in ("kvcache-exporter", "r" * 53):
        for path in VALUES_FILES:
            manifests = render(values_of(path), name=release)
            keys = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
            assert len(set(keys)) == len(keys)
            # What the user names in extraManifests is the user's matter.
            assert all(len(name) <= 63 for *_, name in keys)
            for manifest in manifests:
                labels = manifest["metadata"].get("labels", {})
                assert all(len(str(value)) <= 63 for value in labels.values())
                if manifest["kind"] == "StatefulSet":
                    assert len(manifest["metadata"]["name"]) <= 52


# Legal for Helm or for Kubernetes, and in YAML a number, a word of its own, or no name of a Service.
ODD = ("123", "1e3", "0x10", "1.5", "true", "null", "on", "9a", "a.b", "a" * 43 + "." + "b" * 9, "x" * 53)
EVERYTHING = merged(MONITOR, RULES, RULES_FILE, OPERATOR, BOARDS, POLICY, CLAIM, BUDGET, PUBLISH, TLS)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("odd", ODD)
def test_every_legal_name_of_a_release_and_a_namespace_gives_legal_resources(odd: str, kind: str) -> None:
    values = merged(EVERYTHING, {"kind": kind, "config": {"targets": [TARGET]}})
    namespace = odd.replace(".", "-")
    manifests = render(values, name=odd, namespace=namespace)
    for manifest in manifests:
        assert problems(manifest, KUBERNETES[-1]) == []
        metadata = manifest["metadata"]
        pattern = SERVICE_NAME if manifest["kind"] == "Service" else RESOURCE_NAME
        assert re.fullmatch(pattern, metadata["name"]), metadata["name"]
        assert metadata["namespace"] == namespace
        assert metadata["labels"]["app.kubernetes.io/instance"] == odd
    assert {m["kind"] for m in manifests} >= {"ServiceMonitor", "GrafanaDashboard", "Job", "Role", kind}


SERVICE_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
RESOURCE_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
TARGET = {"kubernetes": {"namespaces": ["{{ .Release.Namespace }}"]}}


@pytest.mark.parametrize("odd", ["123", "true", "9a", "a-b", "n" * 63])
def test_the_name_may_be_overridden_by_any_word(odd: str) -> None:
    manifests = render(merged(EVERYTHING, STATIC, {"nameOverride": odd, "namespaceOverride": odd}))
    assert [problem for m in manifests for problem in problems(m, KUBERNETES[-1])] == []
    assert {m["metadata"]["namespace"] for m in manifests} == {odd}
    service = one(manifests, "Service")
    assert re.fullmatch(SERVICE_NAME, service["metadata"]["name"])
    assert service["spec"]["selector"]["app.kubernetes.io/name"] == odd


def test_names_that_only_differ_in_a_dot_do_not_share_resources() -> None:
    names = [{m["metadata"]["name"] for m in render(STATIC, name=release)} for release in ("a.b", "a-b")]
    assert not names[0] & names[1]


def test_large_numbers_are_written_out() -> None:
    large = 3_000_000
    values = merged(
        STATIC, MONITOR, PUBLISH,
        {
            "revisionHistoryLimit": large,
            "terminationGracePeriodSeconds": large,
            "serviceMonitor": {"sampleLimit": large},
            "grafanaPublish": {"backoffLimit": large},
        },
    )  # fmt: skip
    text = "".join(rendered_files(values).values())
    assert (text.count(f": {large}\n"), "e+06" in text) == (4, False)


def test_images_come_from_one_registry_where_a_parent_chart_says_so() -> None:
    secrets = {"imagePullSecrets": [{"name": "own"}, {"name": "all"}]}
    shared = {"global": {"imageRegistry": "mirror.example", "imagePullSecrets": ["all", {"name": "other"}]}}
    manifests = render(merged(STATIC, RELOADER, PUBLISH, secrets, shared))
    specs = pod_specs(manifests)
    assert set(specs) == {"Deployment", "Job", "Pod"}
    for spec in specs.values():
        assert {c["image"].split("/")[0] for c in spec["containers"]} == {"mirror.example"}
        assert spec["imagePullSecrets"] == [{"name": "own"}, {"name": "all"}, {"name": "other"}]
    images = [c["image"] for c in specs["Deployment"]["containers"]]
    assert images[1] == "mirror.example/prometheus-operator/prometheus-config-reloader:v0.93.0"


def test_the_port_of_the_service_need_not_be_the_one_of_the_container() -> None:
    ports = {"service": {"port": 80, "targetPort": 9500}}
    manifests = render(merged(STATIC, POLICY, RELOADER, ANNOTATED, ports))
    template = workload(manifests)
    exporter, reloader = template["spec"]["containers"]
    assert "--web.listen-address=:9500" in exporter["args"]
    assert exporter["ports"][0]["containerPort"] == 9500
    assert "--reload-url=http://127.0.0.1:9500/-/reload" in reloader["args"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "9500"
    (port,) = one(manifests, "Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (80, exporter["ports"][0]["name"])
    assert one(manifests, "NetworkPolicy")["spec"]["ingress"][0]["ports"] == [
        {"port": 9500, "protocol": "TCP"}
    ]
    assert one(manifests, "Pod")["spec"]["containers"][0]["args"][1].endswith(":80/metrics")


def test_two_long_releases_do_not_share_resources() -> None:
    one_name, other = "a" * 52 + "x", "a" * 52 + "y"
    names = [{m["metadata"]["name"] for m in render(STATIC, name=release)} for release in (one_name, other)]
    assert not names[0] & names[1]


def test_selectors_match_their_pods_and_never_change() -> None:
    """A selector is immutable: nothing that an upgrade changes may stand in it."""
    for name in ("defaults", "sharded", "node-logs", "identity-values"):
        makers = [m for m in ALL[name] if m["kind"].endswith(("Deployment", "Set"))]
        (selector,) = (m["spec"]["selector"]["matchLabels"] for m in makers)
        assert set(selector) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
        labels = workload(ALL[name])["metadata"]["labels"]
        assert selector.items() <= labels.items()
        for service in (m for m in ALL[name] if m["kind"] == "Service"):
            assert service["spec"]["selector"] == selector


def test_other_pods_of_the_release_are_not_taken_for_the_exporter() -> None:
    manifests = ALL["grafana-publish-values"]
    selector = one(manifests, "Service")["spec"]["selector"]
    for other in (one(manifests, "Pod"), one(manifests, "Job")["spec"]["template"]):
        assert not selector.items() <= other["metadata"]["labels"].items()


def test_nothing_stays_behind_when_a_release_is_uninstalled() -> None:
    for manifests in ALL.values():
        for manifest in manifests:
            annotations = manifest["metadata"].get("annotations", {})
            assert "helm.sh/resource-policy" not in annotations
            if "helm.sh/hook" in annotations:
                policy = annotations["helm.sh/hook-delete-policy"]
                assert policy == "before-hook-creation,hook-succeeded"


def test_the_package_has_what_it_needs_and_no_tests(tmp_path: Path) -> None:
    archive = Path(helm_python.package(CHART, destination=tmp_path))
    assert archive.name == "kvcache-exporter-0.1.0.tgz"
    with tarfile.open(archive) as packed_files:
        listed = packed_files.getnames()
    assert "kvcache-exporter/files/rules.yaml" in listed
    assert not [name for name in listed if "/ci/" in name]
    with helm_python.Chart.load(archive) as packed:
        assert set(packed.render(STATIC, name="a", namespace="b"))


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    image = workload(ALL["static-values"])["spec"]["containers"][0]["image"]
    assert image == f"ghcr.io/kvcache-exporter/kvcache-exporter:{__version__}"
    assert __version__ in SIDECAR.read_text()
    assert (ROOT / chart["icon"].partition("/main/")[2]).is_file()


def test_notes_say_what_to_do_next() -> None:
    notes = rendered_files(STATIC)["templates/NOTES.txt"]
    assert "kubectl -n monitoring rollout status deployment/kvcache-kvcache-exporter" in notes
    assert "helm test kvcache -n monitoring" in notes
    assert "runs once on purpose" in notes
    assert "Nothing scrapes it yet" in notes
    monitored = STATIC | {"serviceMonitor": {"enabled": True}}
    assert "does not know ServiceMonitor" in rendered_files(monitored)["templates/NOTES.txt"]
    known = rendered_files(monitored, api_versions=["monitoring.coreos.com/v1/ServiceMonitor"])
    assert "does not know" not in known["templates/NOTES.txt"]


def test_operator_resources_are_made_without_a_cluster_that_knows_them() -> None:
    """GitOps renders without a cluster: the switch alone decides."""
    assert one(render(STATIC | {"serviceMonitor": {"enabled": True}}), "ServiceMonitor")
    assert not [
        m for m in render(STATIC, api_versions=["monitoring.coreos.com/v1"]) if m["kind"] == "ServiceMonitor"
    ]
