"""The rendered container runs as a real exporter; its probes and its monitor's scrape get their answers."""

import functools
from pathlib import Path

import pytest
import requests
from processes import free_port, wait_until
from rendered_pod import PASSWORD, container, helm_test, passes, put_files

from chart import of_file, workload

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore:Unverified HTTPS request")]


def test_where_a_client_certificate_is_required_the_release_can_still_be_tested(tmp_path: Path) -> None:
    manifests = of_file("client-certificates-values")
    put_files(tmp_path, manifests, "kvcache-kvcache-exporter.monitoring.svc")
    port = free_port()
    probes = workload(manifests)["spec"]["containers"][0]
    with container(tmp_path, manifests, port):
        for key in ("startupProbe", "livenessProbe", "readinessProbe"):
            wait_until(key, functools.partial(passes, probes[key], port))
        with pytest.raises(requests.exceptions.RequestException):
            requests.get(f"https://127.0.0.1:{port}/metrics", timeout=5, verify=False)
        ran = helm_test(manifests, port)
    assert ran.returncode == 0, ran.stderr
    assert "answers those who have a certificate" in ran.stdout
    assert helm_test(manifests, port).returncode != 0


@pytest.mark.parametrize("name", ["static-values", "tls-values", "basic-auth-values", "secured"])
def test_probes_and_scrape_get_their_answers(name: str, tmp_path: Path) -> None:
    root = tmp_path / name
    root.mkdir()
    manifests = of_file(name)
    service = "kvcache-kvcache-exporter.monitoring.svc"
    put_files(root, manifests, service)
    port = free_port()
    exporter = workload(manifests)["spec"]["containers"][0]
    with container(root, manifests, port):
        for key in ("startupProbe", "livenessProbe", "readinessProbe"):
            wait_until(f"{key} of {name}", functools.partial(passes, exporter[key], port))
        scheme = "https" if "tls" in name or name == "secured" else "http"
        with requests.Session() as session:
            session.trust_env, session.verify = False, str(root / "ca.pem")
            # The name that the monitor expects in the certificate leads to this machine.
            adapter = requests.adapters.HTTPAdapter()
            session.mount("https://", adapter)
            adapter.init_poolmanager(1, 1, server_hostname=service, assert_hostname=service)
            url = f"{scheme}://127.0.0.1:{port}/metrics"
            locked = name in ("basic-auth-values", "secured")
            assert session.get(url, timeout=5).status_code == (401 if locked else 200)
            page = session.get(url, timeout=5, auth=PASSWORD)
        ran = helm_test(manifests, port)
    assert "kvcache_exporter_build_info" in page.text
    assert ran.returncode == 0, ran.stderr
    assert ("have a password" if locked else "0 of 1 engines are up") in ran.stdout
    assert helm_test(manifests, port).returncode != 0
