"""What a kubelet makes of a pod: volumes from ConfigMaps and Secrets, a container's process, its probes."""

import base64
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from containers import Container, Network, Process, bind
from images import Image
from processes import wait_until

Manifest = Mapping[str, Any]
Files = dict[str, bytes]

_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
# What containerd leaves a container that drops nothing.
_CAPABILITIES = tuple(
    f"CAP_{name}"
    for name in (
        "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP",
        "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
    )
)  # fmt: skip


@dataclass
class Volumes:
    """The pod's volumes as folders of this machine; those that can be written stand in `writable`."""

    folders: dict[str, Path] = field(default_factory=dict)
    writable: set[str] = field(default_factory=set)

    def mounts(self, container: Manifest) -> list[dict[str, Any]]:
        return [
            bind(
                self.folders[mount["name"]] / mount.get("subPath", ""),
                mount["mountPath"],
                writable=mount["name"] in self.writable and not mount.get("readOnly"),
            )
            for mount in container.get("volumeMounts", ())
        ]


def volumes(pod: Manifest, manifests: Iterable[Manifest], folder: Path) -> Volumes:
    """Lays every volume down below `folder`; a claim is an empty folder."""
    found, objects = Volumes(), {(m["kind"], m["metadata"]["name"]): _data(m) for m in manifests}
    group = pod.get("securityContext", {}).get("fsGroup")
    for volume in pod.get("volumes", ()):
        name = volume["name"]
        place = found.folders[name] = folder / name
        place.mkdir(parents=True)
        if volume.keys() & {"emptyDir", "persistentVolumeClaim"}:
            found.writable.add(name)
            place.chmod(0o777 if "emptyDir" in volume else 0o755)
            if group is not None:
                os.chown(place, 0, group)
                place.chmod(0o2777 if "emptyDir" in volume else 0o2775)
        else:
            _write_together(place, _projected(volume, objects), group)
    return found


def _data(manifest: Manifest) -> Files:
    """The files of a ConfigMap or Secret."""
    plain = {**manifest.get("data", {}), **manifest.get("stringData", {})}
    if manifest["kind"] != "Secret":
        return {key: str(text).encode() for key, text in plain.items()}
    encoded = manifest.get("data", {})
    return {k: base64.b64decode(t) if k in encoded else t.encode() for k, t in plain.items()}


def _projected(volume: Manifest, objects: Mapping[tuple[str, str], Files]) -> Files:
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    files: Files = {}
    for source in sources:
        if "secret" in source:
            kind, name = "Secret", source["secret"].get("secretName") or source["secret"]["name"]
        else:
            kind, name = "ConfigMap", source["configMap"]["name"]
        data = objects[kind, name]
        items = source[kind[0].lower() + kind[1:]].get("items") or [{"key": key, "path": key} for key in data]
        files |= {item["path"]: data[item["key"]] for item in items}
    return files


def _write_together(folder: Path, files: Files, group: int | None) -> None:
    """Behind a link `..data`, so that all files change at once; mode 0644, readable by the pod's group."""
    data = folder / "..2026_11_29_10_00_00.1"
    data.mkdir()
    (folder / "..data").symlink_to(data.name)
    for name, content in files.items():
        (data / name).write_bytes(content)
        (data / name).chmod(0o644)
        if group is not None:
            os.chown(data / name, 0, group)
        (folder / name).symlink_to(f"..data/{name}")


def process(
    pod: Manifest, container: Manifest, image: Image, mounts: Sequence[Mapping[str, Any]], folder: Path
) -> Process:
    """The container's process as the pod's and the container's security contexts want it."""
    security = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
    user = security.get("runAsUser", int(image.config["User"].partition(":")[0]))
    assert user != 0 or not security.get("runAsNonRoot"), "a kubelet refuses to run root"
    drops = security.get("capabilities", {}).get("drop", ())
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    groups = {
        *security.get("supplementalGroups", ()),
        *({security["fsGroup"]} if "fsGroup" in security else ()),
    }
    environment = {variable["name"]: variable["value"] for variable in container.get("env", ())}
    hosts = folder / "hosts"
    aliases = [f"{alias['ip']} {' '.join(alias['hostnames'])}" for alias in pod.get("hostAliases", ())]
    hosts.write_text("\n".join(["127.0.0.1 localhost", *aliases, ""]))
    return Process(
        arguments=[
            *container.get("command", image.config["Entrypoint"]),
            *container.get("args", image.config["Cmd"]),
        ],
        environment=[*image.config["Env"], *(f"{name}={value}" for name, value in environment.items())],
        mounts=[*mounts, bind(hosts, "/etc/hosts")],
        user=user,
        group=security.get("runAsGroup", 0),
        groups=sorted(groups),
        memory=None if limit is None else _bytes(limit),
        read_only=security.get("readOnlyRootFilesystem", False),
        may_gain_privileges=security.get("allowPrivilegeEscalation", True),
        capabilities=() if "ALL" in drops else _CAPABILITIES,
        seccomp=security.get("seccompProfile", {}).get("type") == "RuntimeDefault",
    )


def _bytes(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMG]i)?", quantity).groups("")  # type: ignore[union-attr]
    return int(number) * _UNITS[unit]


def probe(container: Manifest, kind: str, running: Container, net: Network) -> None:
    """Asks until the probe succeeds, for as long as the spec allows."""
    spec = container[kind]

    def succeeds() -> bool:
        assert not running.ended, running.log.read_text()
        return _succeeds(container, spec, net)

    seconds = spec.get("failureThreshold", 3) * spec.get("periodSeconds", 10)
    wait_until(f"{kind} {spec}", succeeds, seconds)


def _succeeds(container: Manifest, spec: Manifest, net: Network) -> bool:
    way = spec.get("httpGet") or spec["tcpSocket"]
    ports = {port.get("name"): port["containerPort"] for port in container["ports"]}
    port = ports.get(way["port"], way["port"])
    timeout = spec.get("timeoutSeconds", 1)
    with net.entered():
        if "tcpSocket" in spec:
            with socket.socket() as opened:
                opened.settimeout(timeout)
                return opened.connect_ex(("127.0.0.1", port)) == 0
        url = f"{way.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}{way['path']}"
        headers = {header["name"]: header["value"] for header in way.get("httpHeaders", ())}
        # A kubelet does not look at the certificate either, and follows no redirect to another host.
        answer = requests.get(url, headers=headers, timeout=timeout, verify=False, allow_redirects=False)
        return 200 <= answer.status_code < 400
