"""What docs/install.md says exists: files, values, commands and flags, the unit."""

import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chart import CHART, render
from kvcache_exporter.cli import parser

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "install.md"
UNIT = ROOT / "docs" / "kvcache-exporter.service"
IMAGE = "kvcache-exporter:0.1.0"


def blocks(page: Path = PAGE) -> list[str]:
    """Command blocks, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> Iterator[list[str]]:
    for block in blocks():
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line)


def exporter_arguments() -> Iterator[list[str]]:
    """Arguments of every call of the exporter, in containers and in the unit as well."""
    yield from (words[1:] for words in commands() if Path(words[0]).name == "kvcache-exporter")
    run = (words for words in commands() if words[:2] == ["docker", "run"])
    yield from (words[words.index(IMAGE) + 1 :] for words in run if IMAGE in words[:-1])
    inline = re.findall(r"'kvcache-exporter ([^']+)'", PAGE.read_text())
    yield from map(str.split, inline)
    unit = configparser.RawConfigParser(strict=False, allow_no_value=True)
    unit.read_string(UNIT.read_text())
    yield unit["Service"]["ExecStart"].split()[1:]


def test_every_call_of_the_exporter_is_understood() -> None:
    calls = list(exporter_arguments())
    assert [call[0] for call in calls] == ["inspect", "check", "demo", "healthy", "serve"]
    for call in calls:
        parser().parse_args(call)


def test_every_linked_file_and_heading_exists() -> None:
    for path, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGE.read_text()):
        file = (PAGE.parent / path).resolve() if path else PAGE
        assert file.exists(), path
        headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_example_of_the_chart_is_on_the_page() -> None:
    named = set(re.findall(r"examples/([\w-]+\.yaml)", PAGE.read_text()))
    assert named == {path.name for path in (CHART / "examples").glob("*.yaml")}


def test_what_helm_is_told_renders() -> None:
    """The example and the `--set` of the page, with values that exist."""
    (install,) = (words for words in commands() if words[:2] == ["helm", "install"])
    values = yaml.safe_load((ROOT / install[install.index("--values") + 1]).read_text())
    key, _, registry = install[install.index("--set") + 1].partition("=")
    assert key == "image.registry"
    manifests = render({**values, "image": {"registry": registry}}, name=install[2])
    (deployment,) = (m for m in manifests if m["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(f"{registry}/")
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for dotted in ("image.repository", "image.tag", "prometheusRule.dashboardBase", "networkPolicy.enabled"):
        section, name = dotted.split(".")
        assert f"`{dotted}`" in PAGE.read_text()
        assert name in defaults[section]


@pytest.mark.parametrize("example", sorted((CHART / "examples").glob("*.yaml")), ids=lambda p: p.stem)
def test_nothing_is_kept_from_being_uninstalled(example: Path) -> None:
    """Neither by a policy, nor as a hook that Helm forgets once it ran."""
    documents = list(yaml.safe_load_all(example.read_text()))
    manifests = documents if "kind" in documents[0] and "apiVersion" in documents[0] else render(documents[0])
    for manifest in manifests:
        annotations = manifest["metadata"].get("annotations", {})
        assert "helm.sh/resource-policy" not in annotations
        if "helm.sh/hook" in annotations:
            assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_takes_the_unit_and_finds_it_tight(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    program = tmp_path / "kvcache-exporter"
    program.touch(0o755)
    unit.write_text(UNIT.read_text().replace("/opt/kvcache-exporter/bin/kvcache-exporter", str(program)))
    for command in (["verify"], ["security", "--offline=true", "--threshold=15", "--no-pager"]):
        ended = subprocess.run(
            ["systemd-analyze", *command, str(unit)], capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stderr == ""
