"""Runs containers with runc, as a cluster's node does; the network of one has nothing but loopback."""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images import CACHE, Image
from processes import running, wait_until

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_SECCOMP = Path("/usr/share/containers/seccomp.json")
"""Comes with buildah; names, where a rule is limited to processors or capabilities, those in `includes`."""


@dataclass(frozen=True)
class Process:
    """What an OCI runtime is told about one container."""

    arguments: Sequence[str]
    environment: Sequence[str]
    mounts: Sequence[Mapping[str, Any]] = ()
    user: int = 65532
    group: int = 65532
    groups: Sequence[int] = ()
    memory: int | None = None
    """Limit in bytes."""
    read_only: bool = True
    may_gain_privileges: bool = False
    capabilities: Sequence[str] = ()
    seccomp: bool = False
    """Whether the system calls are limited to what Docker and containerd allow by default."""


def bind(source: Path, target: str, *, writable: bool = False) -> dict[str, Any]:
    options = ["rbind", "rw" if writable else "ro", "nosuid", "nodev"]
    return {"destination": target, "source": str(source), "type": "bind", "options": options}


def tmpfs(target: str) -> dict[str, Any]:
    options = ["nosuid", "nodev", "mode=1777", "size=64m"]
    return {"destination": target, "source": "tmpfs", "type": "tmpfs", "options": options}


class Network:
    """A network namespace with a loopback interface, held by a sleeping process as by a pod's sandbox."""

    def __init__(self, holder: int) -> None:
        self.path = f"/proc/{holder}/ns/net"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile belong to the namespace."""
        with open("/proc/thread-self/ns/net") as own, open(self.path) as other:  # noqa: PTH123
            _set_namespace(other.fileno())
            try:
                yield
            finally:
                _set_namespace(own.fileno())


def _set_namespace(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def network() -> Iterator[Network]:
    own = Path("/proc/self/ns/net").readlink()
    with running(subprocess.Popen(["unshare", "--net", "sleep", "infinity"])) as holder:
        found = Network(holder.pid)
        wait_until("a network of its own", lambda: Path(found.path).readlink() != own)
        with found.entered(), socket.socket() as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _IFF_UP))
        yield found


class Container:
    """A running container; by default without privileges, on a read-only root."""

    def __init__(self, folder: Path, image: Image, process: Process, net: Network) -> None:
        # Control groups are the machine's: another checkout's tests may run beside these.
        self.name = f"{folder.name}-{os.getpid()}"
        self.log = folder / "log"
        (folder / "config.json").write_text(json.dumps(_specification(image, process, net)))
        command = [*_runc(), "run", "--bundle", str(folder), self.name]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        wait_until(f"the start of {self.name}", self._started)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def execute(self, *command: str, seconds: float = 20.0) -> "subprocess.CompletedProcess[str]":
        """Another command in the container, as its user."""
        return subprocess.run(
            [*_runc(), "exec", self.name, *command],
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip

    def kill(self, number: signal.Signals) -> None:
        subprocess.run([*_runc(), "kill", self.name, str(int(number))], check=True)

    def wait(self, seconds: float) -> int:
        """The exit code of the container's process."""
        return self._process.wait(seconds)

    def close(self) -> None:
        subprocess.run([*_runc(), "delete", "--force", self.name], capture_output=True, check=False)
        self._process.wait(10)

    def _started(self) -> bool:
        if self.ended:
            return True
        state = subprocess.run([*_runc(), "state", self.name], capture_output=True, text=True, check=False)
        return state.returncode == 0 and json.loads(state.stdout)["status"] == "running"


def _runc() -> list[str]:
    return ["runc", "--root", str(CACHE / "runc")]


def _specification(image: Image, process: Process, net: Network) -> dict[str, Any]:
    """The container as opencontainers/runtime-spec describes it."""
    system = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    ]
    namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(image.rootfs), "readonly": process.read_only},
        "mounts": [*system, *process.mounts],
        "process": {
            "user": {"uid": process.user, "gid": process.group, "additionalGids": list(process.groups)},
            "args": list(process.arguments),
            "env": list(process.environment),
            "cwd": image.config["WorkingDir"] or "/",
            "noNewPrivileges": not process.may_gain_privileges,
            "capabilities": {"bounding": list(process.capabilities)},
        },
        "linux": {
            "namespaces": [*namespaces, {"type": "network", "path": net.path}],
            **({"resources": {"memory": {"limit": process.memory}}} if process.memory else {}),
            **({"seccomp": _seccomp()} if process.seccomp else {}),
        },
    }


def _seccomp() -> dict[str, Any]:
    """The default profile, less what is for other processors and for capabilities that are not there."""
    profile = json.loads(_SECCOMP.read_text())
    here = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    rules = [
        {key: rule[key] for key in ("names", "action", "args") if rule.get(key)}
        | ({"errnoRet": rule["errnoRet"]} if rule.get("errnoRet") else {})
        for rule in profile["syscalls"]
        if here in rule["includes"].get("arches", [here]) and not rule["includes"].get("caps")
    ]
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "syscalls": rules,
    }
