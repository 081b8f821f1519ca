"""The container image, really built and really run: as its user, without privileges, on a read-only root."""

import argparse
import os
import re
import signal
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import requests
from containers import Container, Network, Process, bind, network, tmpfs
from images import ROOT, Image, built, missing
from packaging.requirements import Requirement
from processes import Engine, wait_until

from certificates import authority
from test_install_page import commands
from test_web_tls import CLIENT_AUTH

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "can run"),
]

RECORDING = ROOT / "tests/fixtures/recordings/vllm-0.32.0"
UID = 65532
VENV = "opt/kvcache-exporter"


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built() as made:
        yield made


@pytest.fixture
def net() -> Iterator[Network]:
    with network() as made:
        yield made


@contextmanager
def container(
    folder: Path, image: Image, net: Network, arguments: Sequence[str] = (), mounts: Sequence[Any] = ()
) -> Iterator[Container]:
    """The image with its own entrypoint and environment, and no shell to lean on."""
    (folder / "nothing").touch()
    shells = [bind(folder / "nothing", f"/usr/bin/{name}") for name in ("sh", "dash", "bash")]
    command = [*image.config["Entrypoint"], *(arguments or image.config["Cmd"])]
    process = Process(command, image.config["Env"], [*mounts, *shells])
    with closing(Container(folder, image, process, net)) as running:
        yield running


def finished(running: Container, seconds: float = 60.0) -> tuple[int, str]:
    code = running.wait(seconds)
    return code, running.log.read_text()


def test_what_docker_is_told(image: Image) -> None:
    config = image.config
    assert config["User"] == f"{UID}:{UID}"
    assert config["ExposedPorts"] == {"9409/tcp": {}}
    assert image.command == [
        "kvcache-exporter", "serve", "--config.file", "/etc/kvcache-exporter/kvcache.yaml",
    ]  # fmt: skip
    assert config["Healthcheck"]["Test"] == ["CMD", "kvcache-exporter", "healthy"]
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in config["Labels"].items()}
    assert (labels["version"], labels["revision"]) == ("1.2.3", "abc")
    assert labels["base.name"].endswith("python:3.13-slim")
    assert labels["licenses"] == "Apache-2.0"


def test_exactly_what_the_lock_names_is_installed(image: Image) -> None:
    (packages,) = (image.rootfs / VENV / "lib").glob("python3.*/site-packages")
    installed = {
        tuple(path.name.removesuffix(".dist-info").split("-")) for path in packages.glob("*.dist-info")
    }
    lines = re.findall(r"^(\S.*?==.*?) *\\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    locked = [requirement for line in lines if _applies(requirement := Requirement(line))]
    expected = {(r.name.replace("-", "_"), str(r.specifier)[2:]) for r in locked}
    assert {(name.lower(), version) for name, version in installed} == expected | {
        ("kvcache_exporter", "0.1.0")
    }


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"python_full_version": "3.13.0"})


def test_nothing_of_the_build_is_left(image: Image) -> None:
    root = image.rootfs
    for leftover in ("build", "src", "wheels", "root/.cache", "var/lib/kvcache-exporter/*", "tmp/*"):
        assert not list(root.glob(leftover)), leftover
    assert not [
        path for path in root.rglob("*.whl") if "python-wheels" not in path.parts
    ]  # of the base's venv
    scripts = {path.name for path in (root / VENV / "bin").iterdir()}
    assert "kvcache-exporter" in scripts
    assert not {name for name in scripts if name.startswith(("pip", "wheel", "hatch", "activate"))}
    assert not list((root / VENV).glob("lib*/python3*/site-packages/{pip,setuptools,hatchling}*"))


def test_its_user_can_write_nothing_but_the_folder_of_the_state(image: Image) -> None:
    state = image.rootfs / "var/lib/kvcache-exporter"
    assert (state.stat().st_uid, stat.S_IMODE(state.stat().st_mode)) == (UID, 0o700)
    foreign = [
        path
        for path in (image.rootfs / VENV).rglob("*")
        if not path.is_symlink() and (path.stat().st_uid or path.stat().st_gid or path.stat().st_mode & 0o022)
    ]
    assert foreign == []
    owned = [path for path in image.rootfs.rglob("*") if path.lstat().st_uid == UID]
    assert owned == [state]


def test_every_module_it_starts_with_has_bytecode(image: Image, net: Network, tmp_path: Path) -> None:
    process = Process(["python", "-v", "-m", "kvcache_exporter", "--version"], image.config["Env"])
    with closing(Container(tmp_path, image, process, net)) as running:
        code, log = finished(running)
    assert code == 0
    origins = re.findall(r"^# code object from '?([^'\n]+)", log, re.MULTILINE)
    assert len(origins) > 200
    assert [origin for origin in origins if not origin.endswith(".pyc")] == []


def test_the_entrypoint_answers_help(image: Image, net: Network, tmp_path: Path) -> None:
    with container(tmp_path, image, net, ["--help"]) as running:
        code, log = finished(running)
    assert code == 0
    assert "serve" in log


def test_without_a_configuration_it_says_which_file_it_wants(
    image: Image, net: Network, tmp_path: Path
) -> None:
    with container(tmp_path, image, net) as running:
        code, log = finished(running)
    assert code == 2
    assert "/etc/kvcache-exporter/kvcache.yaml" in log
    assert "Traceback" not in log


def test_the_demo_runs_with_nothing_but_a_folder_for_temporary_files(
    image: Image, net: Network, tmp_path: Path
) -> None:
    with container(
        tmp_path, image, net, ["demo", "--duration", "6", "--speed", "30"], [tmpfs("/tmp")]
    ) as running:
        code, log = finished(running)
    assert code == 0, log
    assert "recorded second" in log
    assert "Traceback" not in log


WEB = {
    "plain": ("", "healthy"),
    "password": ("basic_auth_users: {{prometheus: '{hash}'}}\n", "healthy: asks for a password"),
    "tls": ("tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n", "healthy"),
    "certificate": (
        f"tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n{CLIENT_AUTH}",
        "healthy: asks for a client certificate",
    ),
}


@pytest.mark.parametrize("kind", WEB)
def test_it_serves_and_its_health_check_knows(kind: str, image: Image, net: Network, tmp_path: Path) -> None:
    settings, answer = WEB[kind]
    etc, state = tmp_path / "etc", tmp_path / "state"
    etc.mkdir()
    state.mkdir()
    authority(etc).issue("server")
    for secret in etc.glob("*"):
        secret.chmod(0o644)
    (etc / "web.yml").write_text(settings.format(hash=bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()))
    state.chmod(0o777)
    with net.entered():
        engine = Engine(RECORDING)
    engine.show("034")
    (etc / "kvcache.yaml").write_text(
        "state: {path: /var/lib/kvcache-exporter/state.sqlite}\n"
        f"targets: [{{static: ['{engine.address}']}}]\n"
    )
    arguments = [
        *image.config["Cmd"],
        *(["--web.config.file", "/etc/kvcache-exporter/web.yml"] if settings else []),
    ]
    mounts = [bind(etc, "/etc/kvcache-exporter"), bind(state, "/var/lib/kvcache-exporter", writable=True)]
    folder = tmp_path / kind
    folder.mkdir()
    with closing(engine), container(folder, image, net, arguments, mounts) as running:
        check = image.config["Healthcheck"]["Test"][1:]
        wait_until("listening", lambda: "is listening on" in running.log.read_text())
        checked = running.execute(*check)
        assert (checked.returncode, checked.stdout) == (0, f"{answer}\n"), checked.stderr
        if kind == "plain":
            with net.entered():
                page = requests.get("http://127.0.0.1:9409/metrics", timeout=5)
            assert f'kvcache_target_up{{target="{engine.address}",engine="vllm"}} 1' in page.text
        running.kill(signal.SIGTERM)
        assert running.wait(10) == 0, running.log.read_text()
    assert {path.name for path in state.iterdir()} == {"state.sqlite", "state.sqlite.lock"}


def test_the_docker_command_of_the_guide(image: Image, net: Network, tmp_path: Path) -> None:
    """What `docker run` of docs/install.md asks for is enough, and its volume has the state file after."""
    (words,) = (words for words in commands() if words[:3] == ["docker", "run", "--detach"])
    options = docker_options(words[3:])
    assert options.read_only
    assert options.cap_drop == "ALL"
    assert options.security_opt == "no-new-privileges"
    (tmp_path / "kvcache.yaml").write_text(
        "state: {path: /var/lib/kvcache-exporter/state.sqlite}\ntargets: [{static: ['127.0.0.1:8000']}]\n"
    )
    # As docker fills a new volume: with what the image has there, its owner included.
    state = tmp_path / "kvcache-state"
    state.mkdir()
    owner = (image.rootfs / "var/lib/kvcache-exporter").stat()
    os.chown(state, owner.st_uid, owner.st_gid)
    state.chmod(stat.S_IMODE(owner.st_mode))
    folder = tmp_path / "docker"
    folder.mkdir()
    mounts = []
    for source, target, *mode in (volume.split(":") for volume in options.volume):
        mounts.append(bind(tmp_path / source.removeprefix("$PWD/"), target, writable=mode != ["ro"]))
    memory = int(options.memory.removesuffix("m")) << 20
    process = Process(image.command, image.config["Env"], mounts, memory=memory)
    with closing(Container(folder, image, process, net)) as running:
        wait_until("listening", lambda: "is listening on" in running.log.read_text())
        assert running.execute("kvcache-exporter", "healthy").stdout == "healthy\n"
        running.kill(signal.SIGHUP)
        wait_until("the reload", lambda: "configuration reloaded" in running.log.read_text())
        running.kill(signal.SIGTERM)
        assert running.wait(10) == 0
    assert {path.name for path in state.iterdir()} == {"state.sqlite", "state.sqlite.lock"}


def docker_options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--name", "--publish", "--cap-drop", "--security-opt", "--memory", "image"):
        parser.add_argument(name)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--volume", action="append")
    return parser.parse_args(words)


@pytest.mark.parametrize("listening", [False, True])
def test_the_health_check_fails_when_nobody_answers(
    listening: bool, image: Image, net: Network, tmp_path: Path
) -> None:
    """Neither on a closed port, nor where a process hangs that the kernel takes connections for."""
    listen = "s.bind(('127.0.0.1', 9409)); s.listen(); " if listening else ""
    hang = f"import socket, time; s = socket.socket(); {listen}print('on', flush=True); time.sleep(60)"
    process = Process(["python", "-c", hang], image.config["Env"])
    with closing(Container(tmp_path, image, process, net)) as running:
        wait_until("the process", lambda: "on" in running.log.read_text())
        checked = running.execute(*image.config["Healthcheck"]["Test"][1:])
    assert checked.returncode == 1
    assert "127.0.0.1:9409: no answer from /-/healthy" in checked.stderr
