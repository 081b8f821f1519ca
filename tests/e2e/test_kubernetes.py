"""The exporter in front of a Kubernetes API, with recorded engines as pods."""

import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
import requests
from processes import Engine, free_port, running, scrape, start_exporter, wait_until

from kubernetes_api import KubernetesApi, Object, kubeconfig, pod

pytestmark = pytest.mark.e2e

RECORDING = Path(__file__).parents[1] / "fixtures" / "recordings" / "vllm-0.32.0"


def pod_of(engine: Engine, name: str, app: str = "vllm") -> Object:
    host, port = engine.address.split(":")
    return pod(name, host, labels={"app": app}, ports=[{"name": "http", "containerPort": int(port)}])


def test_pods_come_and_go_and_the_api_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, config, log = free_port(), tmp_path / "kvcache.yaml", tmp_path / "log"
    with KubernetesApi() as api, closing(Engine(RECORDING)) as one, closing(Engine(RECORDING)) as two:
        (tmp_path / "kubeconfig").write_text(kubeconfig(api.url))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        one.show("034")
        two.show("034")
        for engine, name in ((one, "vllm-0"), (two, "vllm-1")):
            api.put(pod_of(engine, name))
        api.put(pod_of(two, "web", "web"))
        text = (
            "scrape: {interval: 1s, timeout: 800ms, max_age: 100ms}\n"
            'targets: [{kubernetes: {namespaces: [llm], selector: "app=%s", port: http}}]\n'
        )
        config.write_text(text % "vllm")
        up = 'kvcache_target_up{{target="llm/{}",engine="vllm"}}'

        def is_up(*names: str) -> bool:
            shown = {
                key: value for key, value in scrape(port).items() if key.startswith("kvcache_target_up{")
            }
            return shown == {up.format(name): 1.0 for name in names}

        with running(start_exporter(config, port, log)) as process:
            wait_until("both pods", lambda: is_up("vllm-0", "vllm-1"))
            api.delete("llm", "vllm-1")
            wait_until("the end of its series", lambda: not any("vllm-1" in key for key in scrape(port)))
            failures = 'kvcache_exporter_discovery_failures_total{reason="connection"}'
            with api.outage():
                wait_until("the outage being counted", lambda: scrape(port)[failures] >= 2)
                assert is_up("vllm-0")
                assert "cannot be reached" in requests.get(f"http://127.0.0.1:{port}/", timeout=5).text
                api.put(pod_of(two, "vllm-2"))
            wait_until("what came meanwhile", lambda: is_up("vllm-0", "vllm-2"))

            config.write_text(text % "web")
            process.send_signal(signal.SIGHUP)
            wait_until("the other selector", lambda: is_up("web"))
            wait_until("one watch", lambda: len(api.watches) == 1)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            assert time.monotonic() - began < 5.0
    assert "Traceback" not in log.read_text()
