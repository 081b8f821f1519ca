"""A rendered pod as processes of this machine: its files, its container, and how the kubelet looks at it."""

import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
from cryptography import x509
from processes import running

from certificates import authority
from chart import Manifest, below, one, workload

PASSWORD = ("prometheus", "open sesame")


def put_files(root: Path, manifests: list[Manifest], service: str) -> None:
    """What the volumes hold, below `root`: ConfigMaps as rendered, Secrets as an owner makes them."""
    ca = authority(root, "ca")
    ca.issue("server", x509.DNSName(service))
    hashed = bcrypt.hashpw(PASSWORD[1].encode(), bcrypt.gensalt(4)).decode()
    tls = "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n" if root.name == "secured" else ""
    secrets = {
        "tls.crt": (root / "server.pem").read_text(),
        "tls.key": (root / "server.key").read_text(),
        "ca.crt": (root / "ca.pem").read_text(),
        "web.yml": f"{tls}basic_auth_users: {{{PASSWORD[0]}: {hashed}}}\n",
        "token": "secret",
    }
    maps = {m["metadata"]["name"]: m["data"] for m in manifests if m["kind"] == "ConfigMap"}
    template = workload(manifests)["spec"]
    mounts = {m["name"]: m["mountPath"] for m in template["containers"][0]["volumeMounts"]}
    for volume in template["volumes"]:
        folder = root / mounts[volume["name"]].lstrip("/")
        folder.mkdir(parents=True)
        for source in volume.get("projected", {}).get("sources", [volume]):
            if "configMap" in source:
                data = maps[source["configMap"]["name"]]
                for item in source["configMap"]["items"]:
                    (folder / item["path"]).write_text(below(root, data[item["key"]], mounts.values()))
            elif "secret" in source:
                items = source["secret"].get("items", [{"key": "token", "path": "token"}])
                for item in items:
                    (folder / item["path"]).write_text(secrets[item["key"]])


@contextmanager
def container(
    root: Path, manifests: list[Manifest], port: int, pod_name: str = ""
) -> Iterator["subprocess.Popen[bytes]"]:
    """The exporter with the rendered arguments, its file system below `root`."""
    arguments = workload(manifests)["spec"]["containers"][0]["args"]
    placed = [
        argument.replace("=/", f"={root}/").replace("$(POD_NAME)", pod_name)
        for argument in arguments
        if "listen-address" not in argument
    ]
    command = [sys.executable, "-m", "kvcache_exporter", *placed, f"--web.listen-address=127.0.0.1:{port}"]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    with running(process):
        yield process


def kubelet_says(probe: Manifest, port: int) -> bool:
    """As the kubelet judges: any certificate will do, no credentials, 200 to 399 is good."""
    if "tcpSocket" in probe:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0
    get = probe["httpGet"]
    with socket.create_connection(("127.0.0.1", port), 5) as plain:
        if get["scheme"] == "HTTP":
            return status(plain, get["path"]) in range(200, 400)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as wrapped:
            return status(wrapped, get["path"]) in range(200, 400)


def status(connection: socket.socket, path: str) -> int:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return int(connection.recv(4096).split()[1])


def passes(probe: Manifest, port: int) -> bool:
    try:
        return kubelet_says(probe, port)
    except (OSError, IndexError):
        return False


def helm_test(manifests: list[Manifest], port: int) -> "subprocess.CompletedProcess[str]":
    """What the pod of `helm test` runs, asked of this machine."""
    container = one(manifests, "Pod")["spec"]["containers"][0]
    assert container["command"] == ["python3", "-c"]
    script, url, *more = container["args"]
    here = re.sub(r"//[^/]*/", f"//127.0.0.1:{port}/", url)
    command = [sys.executable, "-c", script, here, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
