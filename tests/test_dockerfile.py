"""What can be said of the image without building it: its base, its locks."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {
    "requirements.lock": PROJECT["project"]["dependencies"]
    + PROJECT["project"]["optional-dependencies"]["kafka"],
    "requirements-build.lock": PROJECT["build-system"]["requires"],
}


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by package."""
    entries = re.sub(r"(?m)^\s*#.*\n|\\\n", "", (ROOT / name).read_text()).splitlines()
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in entries:
        requirement, *hashes = re.split(r"\s+--hash=", entry.strip())
        parsed = Requirement(requirement)
        (pin,) = parsed.specifier
        assert pin.operator == "==", entry
        found[canonicalize_name(parsed.name)] = (pin.version, hashes)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_is_pinned_with_hashes(name: str) -> None:
    packages = locked(name)
    assert len(packages) >= len(LOCKS[name])
    for package, (_, hashes) in packages.items():
        assert hashes, package
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), package


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_satisfies_the_project(name: str) -> None:
    packages = locked(name)
    for text in LOCKS[name]:
        wanted = Requirement(text)
        package = canonicalize_name(wanted.name)
        assert package in packages, f"{name} has no {wanted.name}; run `make lock`"
        version, _ = packages[package]
        assert wanted.specifier.contains(version), f"{name} has {version} for {text}; run `make lock`"


def test_nothing_is_installed_past_the_locks() -> None:
    lines = re.sub(r"\\\n", " ", DOCKERFILE).splitlines()
    steps = [step for line in lines for step in line.removeprefix("RUN ").split("&&")]
    commands = [step for step in steps if re.search(r"/pip .*(install|wheel) ", step)]
    assert len(commands) == 4, commands
    for command in commands:
        assert "--require-hashes" in command or "--no-index" in command, command
        assert "--no-deps" in command, command


def test_both_stages_stand_on_one_base_with_a_fixed_tag() -> None:
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim(@sha256:[0-9a-f]{64})?", base)
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert stages == ["${PYTHON_IMAGE}"] * 2
    assert ":latest" not in DOCKERFILE


@pytest.mark.parametrize(
    "base", ["", "docker.io/library/python:latest", "docker.io/library/python:3.13-slim", "python@sha1:abc"]
)
def test_a_release_refuses_a_base_without_a_digest(base: str) -> None:
    ended = _make_image(base)
    assert ended.returncode == 2
    assert "RELEASE=1: pin the base by its digest" in ended.stderr


def test_a_release_hands_the_pinned_base_to_docker(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$@"\n')
    docker.chmod(0o755)
    base = f"docker.io/library/python:3.13-slim@sha256:{'0' * 64}"
    ended = _make_image(base, path=f"{tmp_path}:{os.environ['PATH']}")
    assert ended.returncode == 0, ended.stderr
    assert (
        f"build --build-arg PYTHON_IMAGE={base} --build-arg VERSION=0.1.0 --build-arg REVISION="
        in ended.stdout
    )


def _make_image(base: str, path: str = os.environ["PATH"]) -> "subprocess.CompletedProcess[str]":
    command = ["make", "--silent", "image", "RELEASE=1", f"PYTHON_IMAGE={base}"]
    return subprocess.run(
        command, cwd=ROOT, env={"PATH": path}, capture_output=True, text=True, timeout=20, check=False
    )
