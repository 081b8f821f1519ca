"""Builds the Dockerfile with buildah on a base that mmdebstrap makes, all in `.cache/containers`."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "containers"
_TOOLS = ("buildah", "runc", "mmdebstrap", "unshare")
_BASE = "localhost/python:3.13-slim"
# As docker.io/library/python:3.13-slim: Debian 13 without documentation, Python without bytecode.
_DEBOOTSTRAP = (
    "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase",
    "--include=python3,python3-venv,ca-certificates,netbase,tzdata",
    "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*", "trixie",
)  # fmt: skip
_HOST_PIP = ("/etc/pip.conf", "/etc/ssl/certs")
"""Which package index this machine's pip asks, and whom it trusts; only there during the build."""


def missing() -> str:
    """Why no container can be built here; "" if one can."""
    if os.geteuid() != 0:
        return "containers are built and run as root"
    absent = [tool for tool in _TOOLS if not shutil.which(tool)]
    return f"{', '.join(absent)} not installed; `make tools` does it" if absent else ""


@dataclass(frozen=True)
class Image:
    """A built image: its files, mounted, and its configuration as Docker keeps it."""

    rootfs: Path
    config: Mapping[str, Any]

    @property
    def command(self) -> list[str]:
        return [*self.config["Entrypoint"], *self.config["Cmd"]]


@contextmanager
def built() -> Iterator[Image]:
    """The image of the Dockerfile, mounted. The first build takes a minute, later ones what has changed."""
    if not _buildah("images", "--quiet", "--filter", f"reference={_BASE}"):
        _make_base()
    mounts = [f"--volume={path}:{path}:ro" for path in _HOST_PIP if Path(path).exists()]
    name = "localhost/kvcache-exporter"
    _buildah(
        "build", "--isolation=chroot", "--format=docker", "--layers", *mounts,
        f"--build-arg=PYTHON_IMAGE={_BASE}", "--build-arg=VERSION=1.2.3", "--build-arg=REVISION=abc",
        f"--tag={name}", str(ROOT),
    )  # fmt: skip
    config = json.loads(_buildah("inspect", "--type=image", name))["Docker"]["config"]
    with _mounted(name) as (_, rootfs):
        yield Image(rootfs, config)


def _make_base() -> None:
    with _mounted("scratch") as (container, rootfs):
        subprocess.run([*_DEBOOTSTRAP, str(rootfs)], check=True)
        for folder in (rootfs / "usr/lib").glob("python3*/**/__pycache__"):
            shutil.rmtree(folder)
        _buildah("commit", "--quiet", container, _BASE)


@contextmanager
def _mounted(image: str) -> Iterator[tuple[str, Path]]:
    container = _buildah("from", image)
    try:
        yield container, Path(_buildah("mount", container))
    finally:
        _buildah("rm", container)


def _buildah(*arguments: str) -> str:
    store = ["--root", str(CACHE / "store"), "--runroot", str(CACHE / "run")]
    command = ["buildah", *store, "--storage-driver", os.environ.get("STORAGE_DRIVER", "overlay"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout.strip()
