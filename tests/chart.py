"""The chart as Helm renders it: Helm's own engine (version 4) as a library, without a cluster."""

import copy
import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import helm_python
import yaml
from helm_python import _native

Manifest = dict[str, Any]
CHART = Path(__file__).parents[1] / "helm" / "kvcache-exporter"
SIDECAR = CHART / "examples" / "sidecar.yaml"
"""The one example that is manifests, not values."""
VALUES_FILES = sorted({*CHART.glob("ci/*-values.yaml"), *CHART.glob("examples/*.yaml")} - {SIDECAR})
STATIC: Manifest = {"config": {"targets": [{"engine": "vllm", "static": ["engine:8000"]}]}}
"""Values with one engine and nothing else."""
# The boards are long: in C they are read ten times as fast.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def _loaded(path: Path) -> helm_python.Chart:
    return helm_python.Chart.load(path)


def rendered_files(
    values: Mapping[str, Any] | None = None,
    *,
    name: str = "kvcache",
    namespace: str = "monitoring",
    api_versions: Iterable[str] = (),
    chart: Path = CHART,
) -> dict[str, str]:
    """Texts by the path of their template, NOTES.txt included; raises helm_python.HelmError."""
    options = {"name": name, "namespace": namespace, "api_versions": list(api_versions)}
    # The public method has no argument for the cluster's API versions, the library underneath does.
    arguments = (json.dumps(values) if values else None, json.dumps(options))
    found: dict[str, str] = json.loads(_native.call_string("helm_render", _loaded(chart)._raw(), *arguments))
    return {path.partition("/")[2]: text for path, text in found.items()}


def render(
    values: Mapping[str, Any] | None = None,
    *,
    name: str = "kvcache",
    namespace: str = "monitoring",
    api_versions: Iterable[str] = (),
    chart: Path = CHART,
) -> list[Manifest]:
    """Every manifest that `helm install` would send."""
    files = rendered_files(values, name=name, namespace=namespace, api_versions=api_versions, chart=chart)
    texts = (text for path, text in files.items() if path.endswith(".yaml"))
    return [manifest for text in texts for manifest in yaml.load_all(text, Loader) if manifest]


def values_of(path: Path) -> Manifest:
    return dict(yaml.safe_load(path.read_text()))


def merged(*parts: Mapping[str, Any]) -> Manifest:
    """Values over values, as with several `--values`."""
    result: Manifest = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else copy.deepcopy(value)
    return result


def of_file(stem: str) -> list[Manifest]:
    """What the values file of this name in ci/ or examples/ gives."""
    (path,) = (path for path in VALUES_FILES if path.stem == stem)
    return render(values_of(path))


@functools.cache
def everything() -> dict[str, list[Manifest]]:
    """What each values file gives, and `defaults`; not to be changed."""
    return {path.stem: of_file(path.stem) for path in VALUES_FILES} | {"defaults": render()}


def one(manifests: Iterable[Manifest], kind: str, name: str | None = None) -> Manifest:
    """The only manifest of its kind, or of its kind and name."""
    (found,) = (m for m in manifests if m["kind"] == kind and name in (None, m["metadata"]["name"]))
    return found


def pod_specs(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    """Specs of all pods, by the kind of what makes them."""
    found = {m["kind"]: m["spec"] for m in manifests if m["kind"] == "Pod"}
    makers = [m for m in manifests if m["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job")]
    return found | {m["kind"]: m["spec"]["template"]["spec"] for m in makers}


def workload(manifests: Iterable[Manifest]) -> Manifest:
    """The exporter's pod template."""
    (maker,) = (m for m in manifests if m["kind"] in ("Deployment", "StatefulSet", "DaemonSet"))
    return dict(maker["spec"]["template"])


def below(root: Path, text: str, mounts: Iterable[str]) -> str:
    """A text whose paths of mounted volumes are moved below a folder."""
    pattern = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{pattern})(?=/)", lambda found: f"{root}{found[0]}", text)
