"""The API server of these tests is asked by real clients, so that tests against it mean something."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Pod

from kubernetes_api import KubernetesApi, kubeconfig, matches, pod

KUBECTL = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with KubernetesApi() as server:
        server.put(pod("vllm-0"))
        server.put(pod("vllm-1", "10.0.0.2"))
        server.put(pod("web", "10.0.0.3", labels={"app": "web"}))
        server.put(pod("vllm-0", "10.0.0.4", namespace="other"))
        yield server


@pytest.fixture
def file(api: KubernetesApi, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(api.url, token="t"))
    return path


def kubectl(file: Path, *arguments: str) -> str:
    assert KUBECTL is not None, "kubectl is missing; make install brings it"
    command = [KUBECTL, f"--kubeconfig={file}", f"--cache-dir={file.parent}/cache", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def test_kubectl_discovers_lists_selects_creates_and_deletes(api: KubernetesApi, file: Path) -> None:
    assert "v1.37.0" in kubectl(file, "version")
    assert "endpointslices" in kubectl(file, "api-resources")
    names = ["get", "pods", "-n", "llm", "-o", "name"]
    assert kubectl(file, *names).split() == ["pod/vllm-0", "pod/vllm-1", "pod/web"]
    assert kubectl(file, *names, "-l", "app in (vllm)").split() == ["pod/vllm-0", "pod/vllm-1"]
    assert kubectl(file, *names, "--chunk-size=1").split() == ["pod/vllm-0", "pod/vllm-1", "pod/web"]
    assert kubectl(file, "get", "po", "-A", "-o", "name").count("pod/") == 4
    api.rules.forbidden.add(("list", "pods", "llm"))
    assert "Forbidden" in kubectl(file, *names)
    assert "deleted" in kubectl(file, "delete", "pod", "web", "-n", "llm", "--wait=false")
    assert api.get("llm", "web") is None


def test_kubectl_watches(api: KubernetesApi, file: Path) -> None:
    assert KUBECTL is not None
    command = [
        KUBECTL,
        f"--kubeconfig={file}",
        "get",
        "pods",
        "-n",
        "llm",
        "-w",
        "-o",
        "json",
        "-l",
        "app=vllm",
    ]
    with subprocess.Popen(
        [*command, "--output-watch-events"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        events: Iterator[dict[str, Any]] = map(json.loads, process.stdout)
        seen = [next(events), next(events)]
        api.delete("llm", "vllm-0")
        api.put(pod("vllm-1", "10.0.0.2", labels={"app": "no more"}))
        seen += [next(events), next(events)]
        process.terminate()
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "vllm-0"), ("ADDED", "vllm-1"), ("DELETED", "vllm-0"), ("DELETED", "vllm-1"),
    ]  # fmt: skip


def test_lightkube_lists_in_pages_and_watches_from_a_version(api: KubernetesApi, file: Path) -> None:
    client = Client(config=KubeConfig.from_file(file))
    listed = client.list(Pod, namespace="llm", labels={"app": "vllm"}, chunk_size=1)
    assert [found.metadata.name for found in listed if found.metadata] == ["vllm-0", "vllm-1"]
    assert listed.resourceVersion == str(api.version)
    api.put(pod("vllm-2", "10.0.0.5"))
    api.delete("llm", "vllm-0")
    watch = client.watch(Pod, namespace="llm", resource_version=listed.resourceVersion, server_timeout=5)
    seen = [next(iter(watch)), next(iter(watch))]
    assert [(kind, found.metadata and found.metadata.name) for kind, found in seen] == [
        ("ADDED", "vllm-2"),
        ("DELETED", "vllm-0"),
    ]
    api.compact()
    with pytest.raises(ApiError, match="too old resource version"):
        next(iter(client.watch(Pod, namespace="llm", resource_version=listed.resourceVersion)))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True), ("app=vllm", True), ("app==vllm", True), ("app!=vllm", False), ("app", True),
        ("!app", False), ("!gpu", True), ("app in (vllm, sglang)", True), ("app notin (vllm)", False),
        ("gpu notin (a)", True),
        ("app=vllm,tier=1", True), ("app=vllm,tier=2", False), ("tier>0", True), ("tier<1", False),
        ("gpu!=a", True), ("gpu=a", False), ("gpu in (a)", False),
    ],
)  # fmt: skip
def test_selectors_select(selector: str, expected: bool) -> None:
    assert matches(selector, {"app": "vllm", "tier": "1"}) == expected
