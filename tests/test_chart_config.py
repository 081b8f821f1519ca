"""The exporter's configuration in the chart: checksum, shares, and that the exporter accepts it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from chart import (
    CHART,
    SIDECAR,
    STATIC,
    VALUES_FILES,
    below,
    merged,
    of_file,
    one,
    pod_specs,
    render,
    values_of,
    workload,
)
from kvcache_exporter.cli import main, parser
from manifest_schemas import violations

STEMS = [path.stem for path in VALUES_FILES]


def test_a_restart_comes_with_another_configuration_and_with_nothing_else(tmp_path: Path) -> None:
    newer = tmp_path / "kvcache-exporter"
    shutil.copytree(CHART, newer)
    text = (newer / "Chart.yaml").read_text()
    (newer / "Chart.yaml").write_text(text.replace("\nversion: 0.1.0", "\nversion: 0.2.0"))
    old = one(render(STATIC), "Deployment")
    new = one(render(STATIC, chart=newer), "Deployment")
    assert old["metadata"]["labels"]["helm.sh/chart"] != new["metadata"]["labels"]["helm.sh/chart"]
    assert old["spec"]["template"] == new["spec"]["template"]
    edited = merged(STATIC, {"config": {"scrape": {"interval": "30s"}}})
    assert one(render(edited), "Deployment")["spec"]["template"] != old["spec"]["template"]
    assert one(render(edited), "Deployment")["spec"]["selector"] == old["spec"]["selector"]


def test_names_do_not_count_into_the_checksum() -> None:
    a, b = (workload(render(STATIC, name=name))["metadata"]["annotations"] for name in ("a", "b"))
    assert a["checksum/config"] == b["checksum/config"]


def test_a_shard_count_reaches_the_configuration_and_the_pod_its_index() -> None:
    manifests = of_file("sharded-values")
    config = yaml.safe_load(one(manifests, "ConfigMap")["data"]["config.yml"])
    assert config["shard"] == {"count": 3}
    spec = workload(manifests)["spec"]
    assert "--shard.index=$(POD_NAME)" in spec["containers"][0]["args"]
    assert spec["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert one(manifests, "StatefulSet")["spec"]["replicas"] == 3
    assert one(manifests, "StatefulSet")["spec"]["serviceName"] in {
        m["metadata"]["name"] for m in manifests if m["kind"] == "Service"
    }


def test_a_release_may_be_one_share_by_its_own_configuration() -> None:
    share = {"count": 2, "index": 1}
    manifests = render(merged(STATIC, {"config": {"shard": share}}))
    assert yaml.safe_load(one(manifests, "ConfigMap")["data"]["config.yml"])["shard"] == share
    assert "--shard" not in str(workload(manifests))


@pytest.mark.parametrize("path", [None, *VALUES_FILES], ids=lambda p: p.stem if p else "defaults")
def test_the_exporter_accepts_it(path: Path | None, tmp_path: Path) -> None:
    """The files of the pod's Secrets and ConfigMaps are put where the pod would have them."""
    manifests = render(values_of(path) if path else None)
    maps = [m for m in manifests if m["kind"] == "ConfigMap" and "config.yml" in m.get("data", {})]
    if not maps:
        assert path is not None
        assert path.stem == "existing-config-values"
        return
    mounts = [m["mountPath"] for m in workload(manifests)["spec"]["containers"][0]["volumeMounts"]]
    price = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
    for mount in mounts:
        folder = tmp_path / mount.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text("secret")
        (folder / "prices.json").write_text(json.dumps({"qwen": price}))
    (tmp_path / "config.yml").write_text(below(tmp_path, maps[0]["data"]["config.yml"], mounts))
    assert main(["check", "--config.file", str(tmp_path / "config.yml")]) == 0


def test_numbers_and_words_reach_the_exporter_as_they_are_written() -> None:
    config = {
        "limits": {"blocks_per_source": 1_000_000, "series_per_metric": 123_456},
        "targets": [{"static": ["a:1"], "labels": {"x": "no", "y": "01", "z": "1e3"}}],
    }
    text = one(render({"config": config}), "ConfigMap")["data"]["config.yml"]
    assert "blocks_per_source: 1000000\n" in text
    assert yaml.safe_load(text)["targets"] == config["targets"]


def test_the_reloader_watches_every_configmap_that_the_exporter_reads() -> None:
    values = merged(values_of(CHART / "ci" / "mounts-values.yaml"), {"configReloader": {"enabled": True}})
    exporter, reloader = workload(render(values))["spec"]["containers"]
    mounted = {m["mountPath"] for m in reloader["volumeMounts"]}
    assert mounted == {"/etc/kvcache-exporter/config", "/etc/kvcache-exporter/files/prices"}
    assert {f"--watched-dir={path}" for path in mounted} <= set(reloader["args"])
    assert mounted <= {m["mountPath"] for m in exporter["volumeMounts"]}


def test_the_exporter_knows_every_argument() -> None:
    containers = [
        c for m in map(of_file, STEMS) for spec in pod_specs(m).values() for c in spec["containers"]
    ]
    ours = [c for c in containers if "kvcache-exporter:" in c["image"] and "command" not in c]
    assert {c["args"][0] for c in ours} == {"serve", "publish"}
    for container in ours:
        parser().parse_args([a.replace("$(POD_NAME)", "kvcache-exporter-2") for a in container["args"]])


def test_the_sidecar_of_the_example_is_one(tmp_path: Path) -> None:
    manifests = list(yaml.safe_load_all(SIDECAR.read_text()))
    (tmp_path / "config.yml").write_text(one(manifests, "ConfigMap")["data"]["config.yml"])
    assert main(["check", "--config.file", str(tmp_path / "config.yml")]) == 0
    spec = workload(manifests)["spec"]
    parser().parse_args(spec["containers"][1]["args"])
    assert [v for v in violations(spec) if v.startswith("kvcache-exporter")] == []


def test_prometheus_takes_the_scrape_job_of_the_example(tmp_path: Path) -> None:
    text = (CHART / "examples" / "plain-prometheus.yaml").read_text()
    job = re.findall(r"^#   (.*)$", text, re.MULTILINE)
    # Debian builds promtool without Kubernetes.
    static = [re.sub("kubernetes_sd_configs:.*", "static_configs: [{targets: [a]}]", line) for line in job]
    (tmp_path / "prometheus.yml").write_text("\n".join(static))
    command = ["promtool", "check", "config", "--lint=all", str(tmp_path / "prometheus.yml")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (scrape,) = yaml.safe_load("\n".join(job))["scrape_configs"]
    assert scrape["honor_labels"] is True
    container = workload(of_file("plain-prometheus"))["spec"]["containers"][0]
    assert container["ports"][0]["name"] in {c["regex"] for c in scrape["relabel_configs"]}
