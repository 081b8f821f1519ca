"""The chart as it is installed, without a value: it finds engines with the rights it has, and shares them."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from processes import Engine, free_port, scrape, wait_until
from rendered_pod import container, helm_test, put_files

from chart import Manifest, one, render
from kubernetes_api import KubernetesApi, kubeconfig, pod

pytestmark = pytest.mark.e2e

RECORDING = Path(__file__).parents[1] / "fixtures" / "recordings" / "vllm-0.32.0"
STACK = {"helm-release-name": "vllm", "model": "qwen", "environment": "test"}
OPTED_IN = {"kvcache-exporter.io/scrape": "true"}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    """Two engines that the chart finds by itself, and pods that are none of its business."""
    with KubernetesApi() as api, closing(Engine(RECORDING)) as engine:
        engine.show("034")
        host, number = engine.address.split(":")
        ports = [{"name": "container-port", "containerPort": int(number)}]
        api.put(pod("vllm-0", host, labels=STACK, ports=[*ports, {"name": "zmq", "containerPort": 5555}]))
        api.put(pod("sglang-0", host, annotations=OPTED_IN, ports=ports))
        api.put(pod("postgres-0", host, ports=ports))
        for label in ("vllm-role", "ray.io/node-type"):
            name = f"worker-{label.partition('.')[0]}"
            api.put(pod(name, host, labels=STACK | {label: "worker"}, ports=[]))
        api.put(pod("router", host, labels={"environment": "router"}, ports=ports))
        api.put(pod("vllm-0", host, namespace="other", labels=STACK, ports=ports))
        (tmp_path / "kubeconfig").write_text(kubeconfig(api.url))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield api


def targets_up(port: int) -> set[str]:
    series = (
        re.match(r'kvcache_target_up\{target="(.*?)"', key) for key, value in scrape(port).items() if value
    )
    return {match[1] for match in series if match}


def is_allowed(verb: str, path: str, role: Manifest) -> bool:
    """Whether a Role lets its holder ask this."""
    match = re.fullmatch(
        r"/apis?/(?:(?P<group>[a-z.8]+)/)?v1/namespaces/(?P<where>[a-z]+)/(?P<plural>[a-z]+)", path
    )
    return (
        match is not None
        and match["where"] == role["metadata"]["namespace"]
        and any(
            (match["group"] or "") in rule["apiGroups"]
            and match["plural"] in rule["resources"]
            and verb in rule["verbs"]
            for rule in role["rules"]
        )
    )


def test_engines_are_found_without_a_value_and_with_no_right_too_many(
    api: KubernetesApi, tmp_path: Path
) -> None:
    manifests = render(namespace="llm")
    put_files(tmp_path, manifests, "kvcache-kvcache-exporter.llm.svc")
    port = free_port()
    with container(tmp_path, manifests, port):
        wait_until("both engines", lambda: targets_up(port) == {"llm/vllm-0", "llm/sglang-0"})
        ran = helm_test(manifests, port)
        assert sum(v for k, v in scrape(port).items() if k.startswith("kvcache_exporter_discovery_fail")) == 0
    assert "2 of 2 engines are up" in ran.stdout
    role = one(manifests, "Role")
    assert {verb for verb, *_ in api.requests} == {verb for rule in role["rules"] for verb in rule["verbs"]}
    assert [(verb, path) for verb, path, _ in api.requests if not is_allowed(verb, path, role)] == []


def test_pods_of_a_stateful_set_share_the_engines(api: KubernetesApi, tmp_path: Path) -> None:
    host = str(api.get("llm", "vllm-0")["status"]["podIP"])  # type: ignore[index]
    ports = api.get("llm", "sglang-0")["spec"]["containers"][0]["ports"]  # type: ignore[index]
    names = {f"llm/vllm-{n}" for n in range(8)} | {"llm/sglang-0"}
    for n in range(1, 8):
        api.put(pod(f"vllm-{n}", host, labels=STACK, ports=ports))
    manifests = render({"kind": "StatefulSet", "shard": {"count": 2}}, namespace="llm")
    workload_name = one(manifests, "StatefulSet")["metadata"]["name"]
    found: list[set[str]] = []
    with ExitStack() as stack:
        exporters = [free_port(), free_port()]
        for n, port in enumerate(exporters):
            root = tmp_path / str(n)
            root.mkdir()
            put_files(root, manifests, "x")
            stack.enter_context(container(root, manifests, port, f"{workload_name}-{n}"))
        wait_until("all engines", lambda: set().union(*map(targets_up, exporters)) == names)
        found = [targets_up(port) for port in exporters]
    assert not found[0] & found[1]
    assert all(found)
