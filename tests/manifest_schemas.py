"""Judges of manifests: schemas of Kubernetes and of operators, Pod Security `restricted`."""

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from kubernetes_validate import utils

from chart import Manifest

KUBERNETES = ("1.25", "1.29", "1.33", "1.37")
"""The oldest that the chart allows, the newest whose schemas there are, and two between."""
_CRDS = Path(__file__).parent / "fixtures" / "crds"
_GROUPS = ("monitoring.coreos.com/", "grafana.integreatly.org/")
"""Of the operators whose definitions are in the fixtures."""

# It reads its schemas anew for each manifest.
utils.schema_contents = functools.cache(utils.schema_contents)


def problems(manifest: Manifest, version: str) -> list[str]:
    if manifest["apiVersion"].startswith(_GROUPS):
        return [error.message for error in _operator(manifest["kind"]).iter_errors(manifest)]
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{manifest['kind']} {'.'.join(map(str, error.path))}: {error.message}"]
    return []


@functools.cache
def _operator(kind: str) -> jsonschema.Draft7Validator:
    crd = yaml.safe_load((_CRDS / f"{kind.lower()}.yaml").read_text())
    schema = _strict(copy.deepcopy(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def _strict(schema: Any) -> Any:
    """As the API server reads it: unknown fields are errors, numbers may stand for texts where it says so."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", schema.pop("x-kubernetes-preserve-unknown-fields", False))
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("type", None)
        schema.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    schema.pop("format", None)
    # Go writes flags anywhere in a pattern, Python at its start.
    if "(?i)" in str(schema.get("pattern")):
        schema["pattern"] = "(?i)" + schema["pattern"].replace("(?i)", "")
    return {key: _strict(part) for key, part in schema.items()}


def violations(spec: Manifest) -> Iterator[str]:
    """What `restricted` forbids: kubernetes.io/docs/concepts/security/pod-security-standards."""
    allowed = {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
        "secret",
    }  # fmt: skip
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield key
    for volume in spec.get("volumes", ()):
        if not set(volume) - {"name"} <= allowed:
            yield f"volume {volume['name']}"
    pod = spec.get("securityContext", {})
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for problem in _container_violations(container, pod):
            yield f"{container['name']}: {problem}"


def _container_violations(container: Manifest, pod: Manifest) -> Iterator[str]:
    own = container.get("securityContext", {})
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot"
    if own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield "runAsUser"
    seccomp = own.get("seccompProfile", pod.get("seccompProfile", {})).get("type")
    if seccomp not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "hostPort"
