"""The exporter's configuration in the chart: checksum, shares, and that the exporter accepts it."""

import shutil
from pathlib import Path

import pytest
import yaml

from chart import CHART, STATIC, VALUES_FILES, merged, of_file, one, render, values_of, workload
from kvcache_exporter.cli import main
from kvcache_exporter.config.target_sections import TargetGroup


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


@pytest.mark.parametrize("path", [None, *VALUES_FILES], ids=lambda p: p.stem if p else "defaults")
def test_the_exporter_accepts_it(path: Path | None, tmp_path: Path) -> None:
    """The files of the pod's Secrets and ConfigMaps are put where the pod would have them."""
    manifests = render(values_of(path) if path else None)
    maps = [m for m in manifests if m["kind"] == "ConfigMap" and "config.yml" in m.get("data", {})]
    if not maps:
        assert path is not None
        assert path.stem == "existing-config-values"
        return
    text = maps[0]["data"]["config.yml"]
    if "kubernetes" in TargetGroup.REFUSED and ("kubernetes:" in text or "shard:" in text):
        pytest.skip("this version of the exporter neither discovers targets in Kubernetes nor shares them")
    for mount in workload(manifests)["spec"]["containers"][0]["volumeMounts"]:
        folder = tmp_path / mount["mountPath"].lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text("secret")
        text = text.replace(mount["mountPath"], str(folder))
    (tmp_path / "config.yml").write_text(text)
    assert main(["check", "--config.file", str(tmp_path / "config.yml")]) == 0


def test_numbers_and_words_reach_the_exporter_as_they_are_written() -> None:
    config = {
        "limits": {"blocks_per_source": 1_000_000, "series_per_metric": 123_456},
        "targets": [{"static": ["a:1"], "labels": {"x": "no", "y": "01", "z": "1e3"}}],
    }
    text = one(render({"config": config}), "ConfigMap")["data"]["config.yml"]
    assert "blocks_per_source: 1000000\n" in text
    assert yaml.safe_load(text)["targets"] == config["targets"]
