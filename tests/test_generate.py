"""`generate` writes the boards and the rules, also with the user's own settings."""

import json
from pathlib import Path

import pytest
import yaml

from kvcache_exporter.cli import main

# The SDK announces a newer model of dashboards when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("what", "committed"), [("dashboards", "dashboards/generated"), ("rules", "alerts/generated")]
)
def test_without_settings_it_writes_what_is_committed(what: str, committed: str, tmp_path: Path) -> None:
    assert main(["generate", what, "--out", str(tmp_path)]) == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in (ROOT / committed).iterdir()}


def test_it_says_which_files_changed_and_writes_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "rules", "--out", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"created: {tmp_path}/made/recording.yaml",
        f"created: {tmp_path}/made/alerting.yaml",
    ]
    (tmp_path / "made" / "alerting.yaml").write_text("")
    assert main(["generate", "rules", "--out", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"unchanged: {tmp_path}/made/recording.yaml",
        f"updated: {tmp_path}/made/alerting.yaml",
    ]


def test_several_files_without_out_go_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "rules"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"recording.yaml", "alerting.yaml"}
    assert capsys.readouterr().out == ""


def test_settings_reach_the_boards_and_the_rules(tmp_path: Path) -> None:
    settings = ["--set", "datasource=mimir-eu", "--set", "title_prefix=LLM: "]
    assert main(["generate", "dashboards", "--out", str(tmp_path), *settings]) == 0
    board = json.loads((tmp_path / "kvcache-overview.json").read_text())
    assert board["title"].startswith("LLM: ")
    (source,) = (v for v in board["templating"]["list"] if v["type"] == "datasource")
    assert source["current"]["value"] == "mimir-eu"
    assert main(["generate", "rules", "--out", str(tmp_path), "--set", "interval=15s"]) == 0
    groups = yaml.safe_load((tmp_path / "recording.yaml").read_text())["groups"]
    assert {group["interval"] for group in groups} == {"15s"}


@pytest.mark.parametrize("what", ["dashboards", "rules"])
def test_an_unknown_setting_is_bad_usage_and_nothing_is_written(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", what, "--out", str(tmp_path / "out"), "--set", "no_such=1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kvcache-exporter: --set: ")
    assert "no_such" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["interval", "=1", ""])
def test_a_setting_without_key_and_value_is_bad_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["generate", "rules", "--set", text])
    assert caught.value.code == 2
    assert f"{text!r} is not KEY=VALUE" in capsys.readouterr().err
