"""`publish prometheus` with a real Prometheus: the rules are there after the reload it asks for."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from processes import free_port, running, wait_until

from kvcache_exporter.cli import main

pytestmark = pytest.mark.e2e


@contextmanager
def _prometheus(folder: Path, *flags: str) -> Iterator[str]:
    """A Prometheus that reads rules from folder/rules; its URL."""
    (folder / "rules").mkdir()
    config, port = folder / "prometheus.yml", free_port()
    config.write_text("rule_files: [rules/*.yaml]\n")
    data = f"--storage.tsdb.path={folder / 'data'}"
    command = ["prometheus", f"--config.file={config}", data, f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, *flags], stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    with running(process):
        wait_until("Prometheus being ready", lambda: requests.get(f"{url}/-/ready", timeout=1).ok)
        yield url


def _groups(url: str) -> set[str]:
    found = requests.get(f"{url}/api/v1/rules", timeout=5).json()["data"]["groups"]
    return {group["name"] for group in found}


def test_published_rules_are_evaluated_after_the_reload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _prometheus(tmp_path, "--web.enable-lifecycle") as url:
        command = ["publish", "prometheus", "--file", str(tmp_path / "rules"), "--reload-url", url]
        assert main(command) == 0
        assert "kvcache-recording" in _groups(url)
        capsys.readouterr()
        assert main(command) == 0
        assert f"done: 2 unchanged\nreloaded: {url}\n" in capsys.readouterr().out
        (tmp_path / "rules" / "other.yaml").write_text("groups: [{name: x, rules: [{record: a, expr: ')'}]}]")
        assert main(command) == 1
        assert "still runs the old ones" in capsys.readouterr().err
        assert "kvcache-recording" in _groups(url)


def test_a_prometheus_that_does_not_reload_on_request_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _prometheus(tmp_path) as url:
        command = ["publish", "prometheus", "--file", str(tmp_path / "rules"), "--reload-url", url]
        assert main(command) == 1
        assert _groups(url) == set()
    error = capsys.readouterr().err
    assert "Lifecycle API is not enabled" in error
    assert "Start Prometheus with --web.enable-lifecycle, or send it SIGHUP" in error
