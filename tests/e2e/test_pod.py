"""The chart's pods, run as a node would: runc, the spec's user, limits, files, probes and end."""

import base64
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import requests
import yaml
from containers import Container, Network, network
from images import ROOT, Image, built, missing
from kubelet import probe, process, volumes
from processes import Engine, wait_until

from certificates import authority
from chart import CHART, Manifest, pod_specs, render

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "can run"),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),
]

PAGE = ROOT / "tests/fixtures/engines/vllm-0.32.0"
PORT = 8000
TARGET = f"engine-0.llm.svc:{PORT}"
TOKEN, PASSWORD = "a token of the engines", "a password of Prometheus"
ALIASES = [{"ip": "127.0.0.1", "hostnames": ["engine-0.llm.svc"]}]
# Differ from run to run by their nature.
MOVING = (
    "kvcache_target_scrape_duration_seconds", "kvcache_target_last_success_timestamp_seconds",
    "kvcache_age_seconds", "kvcache_warm",
)  # fmt: skip


def example(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())
    return values


def secret(name: str, **files: bytes) -> Manifest:
    data = {key.replace("_", "."): base64.b64encode(content).decode() for key, content in files.items()}
    return {"kind": "Secret", "metadata": {"name": name}, "data": data}


def _static(**extra: object) -> dict[str, Any]:
    state = {"path": "/var/lib/kvcache-exporter/state.sqlite"}
    return {"targets": [{"engine": "auto", "static": [TARGET], **extra}], "state": state}


def _chart(values: Mapping[str, Any]) -> list[Manifest]:
    return render({"hostAliases": ALIASES, **values})


def _secured() -> list[Manifest]:
    """The example, with its engines as the test has them."""
    token_file = "/etc/kvcache-exporter/secrets/engine/token"
    values = example("secured")
    assert values["config"]["targets"][0]["bearer_token_file"] == token_file
    return _chart(
        {**values, "config": _static(bearer_token_file=token_file), "persistence": {"enabled": True}}
    )


def _openshift() -> list[Manifest]:
    """The example, with the ids that the constraint restricted-v2 fills in."""
    manifests = _chart({**example("openshift"), "config": _static()})
    context = pod_specs(manifests)["Deployment"].setdefault("securityContext", {})
    assert not context.keys() & {"runAsUser", "fsGroup"}
    context |= {"runAsUser": 1000650000, "fsGroup": 1000650000}
    return manifests


def _sidecar() -> list[Manifest]:
    return list(yaml.safe_load_all((CHART / "examples/sidecar.yaml").read_text()))


@dataclass(frozen=True)
class Case:
    manifests: Callable[[], list[Manifest]]
    container: str = "exporter"
    user: int = 65532
    scheme: str = "http"
    token: str = ""
    login: tuple[str, str] | None = None
    target: str = TARGET
    probes: tuple[str, ...] = ("startupProbe", "livenessProbe", "readinessProbe")
    state: bool = True


CASES = {
    "default": Case(lambda: _chart({"config": _static()})),
    "tls": Case(
        lambda: _chart(
            {"config": _static(), "web": {"tls": {"enabled": True, "existingSecret": "kvcache-tls"}}}
        ),
        scheme="https",
    ),
    "secured": Case(_secured, scheme="https", token=TOKEN, login=("prometheus", PASSWORD)),
    "openshift": Case(_openshift, user=1000650000),
    "sidecar": Case(
        _sidecar,
        container="kvcache-exporter",
        target=f"127.0.0.1:{PORT}",
        probes=("livenessProbe",),
        state=False,
    ),
}


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built() as made:
        yield made


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """What the operator makes beforehand, as the example says."""
    folder = tmp_path_factory.mktemp("secrets")
    authority(folder).issue("kvcache")
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    web = {
        "tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"},
        "basic_auth_users": {"prometheus": hashed},
    }
    pair = {
        "tls_crt": (folder / "kvcache.pem").read_bytes(),
        "tls_key": (folder / "kvcache.key").read_bytes(),
    }
    return [
        secret("kvcache-web", web_yml=yaml.safe_dump(web).encode()),
        secret("kvcache-tls", **pair),
        secret("engine-token", token=f"{TOKEN}\n".encode()),
    ]


def expected(target: str) -> set[str]:
    text = (PAGE / "expected.prom").read_text().replace("replica-0:8000", target)
    return {line for line in text.splitlines() if not line.startswith(("#", *MOVING))}


def below(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and change time of every file."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found.items()}


def status(running: Container) -> dict[str, str]:
    """What the kernel says of the container's first process."""
    read = running.execute("python", "-c", "print(open('/proc/1/status').read())")
    assert read.returncode == 0, read.stderr
    return dict(line.split(":\t", 1) for line in read.stdout.splitlines() if ":\t" in line)


@pytest.mark.parametrize("name", CASES)
def test_a_pod_of_the_chart_does_its_work(
    name: str, image: Image, secrets: list[Manifest], tmp_path: Path
) -> None:
    case = CASES[name]
    manifests = [*case.manifests(), *secrets]
    pod = pod_specs(manifests)["Deployment"]
    (container,) = (c for c in pod["containers"] if c["name"] == case.container)
    held = volumes(pod, manifests, tmp_path / "volumes")
    bundle = tmp_path / f"pod-{name}"
    bundle.mkdir()
    started = process(pod, container, image, held.mounts(container), bundle)
    with network() as net:
        with net.entered():
            engine = Engine(PAGE, PORT, case.token)
        engine.page = (PAGE / "page.prom").read_bytes()
        read_only = {
            folder: below(folder) for key, folder in held.folders.items() if key not in held.writable
        }
        with closing(engine), closing(Container(bundle, image, started, net)) as running:
            try:
                for kind in case.probes:
                    probe(container, kind, running, net)
                _check_privileges(running, case)
                _check_page(case, net)
            except TimeoutError as error:
                raise AssertionError(running.log.read_text()) from error
            began = time.monotonic()
            running.kill(signal.SIGTERM)
            assert running.wait(pod.get("terminationGracePeriodSeconds", 30)) == 0, running.log.read_text()
            assert time.monotonic() - began < 10.0
    assert {folder: below(folder) for folder in read_only} == read_only
    written = {path.name for key in held.writable for path in held.folders[key].rglob("*")}
    assert written == ({"state.sqlite", "state.sqlite.lock"} if case.state else set())
    log = running.log.read_text()
    assert TOKEN not in log
    assert PASSWORD not in log


def _check_privileges(running: Container, case: Case) -> None:
    facts = status(running)
    assert facts["Uid"].split("\t") == [str(case.user)] * 4
    assert {facts[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"
    closed = ("/", "/opt/kvcache-exporter", "/etc/kvcache-exporter/config")
    # The chart gives SQLite a folder of its own for large transactions; the sidecar keeps no state.
    for place in closed if case.state else (*closed, "/tmp"):
        tried = running.execute("python", "-c", f"open('{place}/x', 'w')")
        assert tried.returncode == 1, place
        assert "Read-only file system" in tried.stderr


def _check_page(case: Case, net: Network) -> None:
    """Exactly the series of the played page, to those who may ask."""
    url = f"{case.scheme}://127.0.0.1:9409/metrics"

    def page() -> str:
        with net.entered():
            answer = requests.get(url, timeout=10, verify=False, auth=case.login)
        answer.raise_for_status()
        return answer.text

    up = f'kvcache_target_up{{target="{case.target}",engine="vllm"}} 1'
    text = wait_until("the engine being read", lambda: found if up in (found := page()) else None)
    # The golden page is of a young process; at the time of this test the recorded one is old.
    assert expected(case.target) <= set(text.replace('phase="warm"', 'phase="cold"').splitlines())
    if case.login:
        with net.entered():
            assert requests.get(url, timeout=10, verify=False).status_code == 401
