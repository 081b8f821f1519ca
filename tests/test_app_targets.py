"""The running exporter and its targets: found and lost without a tick, over reloads, under their names."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import Engine, wait_until

from kubernetes_api import KubernetesApi, kubeconfig, pod
from kvcache_exporter import app as module
from kvcache_exporter.app import App
from kvcache_exporter.pages import ExporterPages

RECORDING = Path(__file__).parent / "fixtures" / "recordings" / "vllm-0.32.0"


@contextmanager
def running(file: Path) -> Iterator[App]:
    app = App(file)
    app.start()
    try:
        yield app
    finally:
        began = time.monotonic()
        app.stop()
        assert time.monotonic() - began < 10.0, "shutdown is prompt, also in the middle of watches"
        # What is being scraped may still say so in the log, of which later tests know nothing.
        app.scheduler._pool.shutdown()


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with KubernetesApi() as server:
        yield server


def configure(api: KubernetesApi, folder: Path, selector: str, extra: str = "") -> Path:
    (folder / "kubeconfig").write_text(kubeconfig(api.url))
    file = folder / "kvcache.yaml"
    file.write_text(
        "scrape: {interval: 1s, timeout: 500ms}\n"
        f'targets: [{{kubernetes: {{selector: "{selector}", kubeconfig: kubeconfig}}}}{extra}]\n'
    )
    return file


def comes(what: str, check: Any) -> None:
    wait_until(what, check, 10.0)


def test_a_pod_is_found_and_lost_without_waiting_for_a_tick(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DISCOVERY_SECONDS", 3600.0)
    with closing(Engine(RECORDING)) as engine, running(configure(api, tmp_path, "app=vllm")) as app:
        engine.show("034")
        host, port = engine.address.split(":")
        api.put(pod("vllm-0", host, ports=[{"name": "http", "containerPort": int(port)}]))
        pages = ExporterPages(app)
        up = b'kvcache_target_up{target="llm/vllm-0",engine="vllm"} 1'
        comes("the pod's series", lambda: up in pages.metrics(openmetrics=False))
        assert b'{target="llm/vllm-0",namespace="llm",' in pages.metrics(openmetrics=False)
        api.delete("llm", "vllm-0")
        comes("their end", lambda: b"llm/vllm-0" not in pages.metrics(openmetrics=False))


def test_a_pod_of_the_same_name_is_a_restart_of_the_target(api: KubernetesApi, tmp_path: Path) -> None:
    with (
        closing(Engine(RECORDING)) as first,
        closing(Engine(RECORDING)) as second,
        running(configure(api, tmp_path, "app=vllm")) as app,
    ):
        first.show("034")
        second.show("060")
        for engine, restarts in ((first, 0), (second, 1)):
            host, port = engine.address.split(":")
            api.put(pod("vllm-0", host, ports=[{"name": "http", "containerPort": int(port)}]))
            comes("the page", lambda: "llm/vllm-0" in app.scheduler.jobs)
            job = app.scheduler.jobs["llm/vllm-0"]
            comes("the engine", lambda job=job: job.collector.up)
            assert job.collector.cold.lifecycle.life.restarts == restarts
            api.delete("llm", "vllm-0")
            comes("the pod's end", lambda: app.scheduler.jobs == {})


def test_a_reload_ends_watches_that_changed_and_keeps_the_others_targets(
    api: KubernetesApi, tmp_path: Path
) -> None:
    for name, label in (("vllm-0", "vllm"), ("web", "web"), ("api", "api")):
        api.put(pod(name, "127.0.0.1", labels={"app": label}, ports=[{"name": "http", "containerPort": 1}]))
    kept = ', {kubernetes: {selector: "app=api", kubeconfig: kubeconfig}}'
    file = configure(api, tmp_path, "app=vllm", kept)
    with running(file) as app:
        comes("both", lambda: set(app.scheduler.jobs) == {"llm/vllm-0", "llm/api"})
        comes("both watches", lambda: len(api.watches) == 2)
        job = app.scheduler.jobs["llm/api"]
        for selector, name in (("app=web", "llm/web"), ("app=vllm", "llm/vllm-0"), ("app=web", "llm/web")):
            configure(api, tmp_path, selector, kept)
            assert app.reload() is None
            comes("the new target", lambda name=name: set(app.scheduler.jobs) == {name, "llm/api"})
            assert app.scheduler.jobs["llm/api"] is job
            comes("two watches", lambda: len(api.watches) == 2)
        assert sum("kubernetes" in thread.name for thread in threading.enumerate()) == 2
    assert not [thread for thread in threading.enumerate() if "kubernetes" in thread.name]


def test_failures_of_groups_that_a_reload_removed_stay_counted(api: KubernetesApi, tmp_path: Path) -> None:
    api.rules.forbidden.add(("list", "pods", ""))
    with running(configure(api, tmp_path, "app=vllm")) as app:
        comes("a failure", lambda: app.discovery_failures["forbidden"])
        api.rules.forbidden.clear()
        before = app.discovery_failures["forbidden"]
        configure(api, tmp_path, "app=web")
        assert app.reload() is None
        assert app.discovery_failures["forbidden"] >= before
        page = ExporterPages(app).metrics(openmetrics=False).decode()
        assert 'kvcache_exporter_discovery_failures_total{reason="forbidden"}' in page
        assert 'kvcache_exporter_discovery_failures_total{reason="lookup"} 0' in page


def write(file: Path, document: Any) -> None:
    """A complete file, moved into place."""
    file.with_suffix(".new").write_text(json.dumps(document))
    file.with_suffix(".new").replace(file)


def test_a_reload_logs_what_is_configured_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "kvcache.yaml"
    file.write_text('targets: [{static: ["127.0.0.1:1"]}]')
    with running(file) as app, caplog.at_level("INFO"):
        file.write_text('targets: [{static: ["127.0.0.1:1"]}, {static: ["127.0.0.1:2"]}]')
        assert app.reload() is None
    overview = "2 target groups, 0 log sources, 0 event sources"
    assert f"configuration reloaded from {file}: {overview}" in caplog.messages


def test_files_and_names_are_followed_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "kvcache.yaml"
    file.write_text(
        "scrape: {interval: 1s, timeout: 500ms}\n"
        'targets: [{file: {path: "t.json", refresh: 1s}}, {dns: {name: localhost, port: 1, refresh: 1s}}]\n'
    )
    write(tmp_path / "t.json", [{"targets": ["127.0.0.1:2"]}])
    with running(file) as app:
        comes("both", lambda: set(app.scheduler.jobs) == {"127.0.0.1:1", "127.0.0.1:2"})
        stays = app.scheduler.jobs["127.0.0.1:1"]
        write(tmp_path / "t.json", [{"targets": ["127.0.0.1:3", "127.0.0.1:4"]}])
        comes("the change", lambda: set(app.scheduler.jobs) == {f"127.0.0.1:{n}" for n in (1, 3, 4)})
        write(tmp_path / "t.json", [])
        assert app.reload() is None, "a reload looks again at once"
        assert app.scheduler.jobs == {"127.0.0.1:1": stays}
