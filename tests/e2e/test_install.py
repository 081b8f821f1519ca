"""The commands of docs/install.md for a machine with Python, as they stand there but for the folders."""

import os
import subprocess
from pathlib import Path

import pytest

from test_install_page import ROOT, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_pip_as_the_page_says_and_nothing_is_left_after(tmp_path: Path) -> None:
    opt, etc = tmp_path / "opt", tmp_path / "etc"
    (etc / "kvcache-exporter").mkdir(parents=True)
    (etc / "kvcache-exporter/kvcache.yaml").write_text("targets: [{static: ['10.0.0.1:8000']}]\n")
    newest, locked = (block for block in blocks() if "bin/pip" in block)
    before = set(tmp_path.rglob("*"))
    for block in (newest, locked):
        _run(block.replace("/opt/", f"{opt}/").replace("/etc/", f"{etc}/"))
        _run(f"{opt}/kvcache-exporter/bin/pip check")
        said = _run(f"{opt}/kvcache-exporter/bin/kvcache-exporter --version")
        assert said.endswith("kvcache-exporter 0.1.0\n")
    _run(f"{opt}/kvcache-exporter/bin/kvcache-exporter metrics | diff - docs/metrics.md")
    (uninstall,) = (block for block in blocks() if "rm -r " in block)
    removed = uninstall.splitlines()[-1]
    (etc / "systemd/system").mkdir(parents=True)
    (etc / "systemd/system/kvcache-exporter.service").touch()
    _run(removed.replace("/opt/", f"{opt}/").replace("/etc/", f"{etc}/"))
    left = {path for path in tmp_path.rglob("*") if "kvcache" in path.name}
    assert left == set()
    assert before - {path for path in before if "kvcache" in path.name} <= set(tmp_path.rglob("*"))


def _run(script: str) -> str:
    """In the checkout, in an environment that knows no other Python than the system's."""
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{script}\n{ended.stdout}{ended.stderr}"
    return ended.stdout
