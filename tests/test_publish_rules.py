"""Publishing rules: to a server with groups as the ruler API of Mimir and Cortex documents, and to files."""

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server import Answer, ApiServer, Request
from kvcache_exporter.cli import main
from kvcache_exporter.commands import publish
from kvcache_exporter.errors import UsageError
from kvcache_exporter.publish import prometheus
from kvcache_exporter.publish.client import Client, PublishError
from kvcache_exporter.publish.mimir import Group, Ruler, groups_of

RECORDING = """groups:
  - name: kvcache.recording
    interval: 60s
    rules:
      - {record: "model:x:rate5m", expr: "sum(rate(x_total[5m]))"}
"""
ALERTING = """groups:
  - name: kvcache.alerts
    rules:
      - alert: KVCacheTargetDown
        expr: |
          kvcache_target_up == 0
        for: 90s
        labels: {severity: warning}
        annotations: {summary: "A target is down."}
"""
FILES = {"recording.yaml": RECORDING, "alerting.yaml": ALERTING}
MIMIR, CORTEX = "/prometheus/config/v1/rules", "/api/v1/rules"


class FakeRuler(ApiServer):
    """Groups by tenant and namespace under one route prefix; other paths are unknown."""

    def __init__(self, prefix: str) -> None:
        super().__init__(self.answer)
        self.prefix = prefix
        self.groups: dict[tuple[str, str], dict[str, Group]] = {}

    def answer(self, request: Request) -> Answer:
        if not request.path.startswith(self.prefix + "/"):
            return Answer(404, "404 page not found\n")
        namespace, *name = request.parts[self.prefix.count("/") :]
        groups = self.groups.setdefault((request.headers.get("X-Scope-OrgID", ""), namespace), {})
        match request.method, name:
            case "GET", [] if not groups:
                return Answer(404, "no rule groups found\n")
            case "GET", []:
                listed = yaml.safe_dump({namespace: list(groups.values())})
                return Answer(200, listed, {"Content-Type": "application/yaml"})
            case "POST", []:
                return self._set(groups, request)
            case "DELETE", [group]:
                del groups[group]
                return Answer(202, {"status": "success", "data": None, "errorType": "", "error": ""})
        return Answer(405)

    def _set(self, groups: dict[str, Group], request: Request) -> Answer:
        if request.headers["Content-Type"] != "application/yaml":
            return Answer(400, "unable to decode rule group\n")
        group = yaml.safe_load(request.body)
        # A ruler writes durations its own way and adds settings of its own.
        if group.get("interval") == "60s":
            group |= {"interval": "1m"}
        for rule in group["rules"]:
            if rule.get("for") == "90s":
                rule |= {"for": "1m30s"}
        groups[group["name"]] = group | {"source_tenants": [], "evaluation_delay": "0s"}
        return Answer(202, {"status": "success", "data": None, "errorType": "", "error": ""})


@pytest.fixture(params=[MIMIR, CORTEX])
def server(request: pytest.FixtureRequest) -> Iterator[FakeRuler]:
    with closing(FakeRuler(request.param)) as made:
        yield made


def ruler(server: FakeRuler, namespace: str = "kvcache") -> Ruler:
    return Ruler(Client(server.url, "glsa_t", sleep=lambda _: None), namespace)


def actions(changes: list[Any]) -> list[str]:
    return [change.action for change in changes]


def test_groups_are_set_and_a_second_run_writes_nothing(server: FakeRuler) -> None:
    assert actions(ruler(server).publish(groups_of(FILES))) == ["create", "create"]
    assert list(server.groups["", "kvcache"]) == ["kvcache.recording", "kvcache.alerts"]
    server.requests.clear()
    assert actions(ruler(server).publish(groups_of(FILES))) == ["unchanged", "unchanged"]
    assert server.writes == []


def test_only_what_differs_is_set_and_what_we_dropped_is_deleted(server: FakeRuler) -> None:
    ruler(server).publish(groups_of(FILES))
    server.groups["", "kvcache"]["kvcache.old/stale"] = {"name": "kvcache.old/stale", "rules": []}
    changed = ALERTING.replace("90s", "5m").replace('summary: "A target is down."', "runbook_url: there")
    changes = ruler(server).publish(groups_of(FILES | {"alerting.yaml": changed}))
    same, changed_group, dropped = (change.text(dry_run=False) for change in changes)
    assert (same, dropped) == ("unchanged: group kvcache.recording", "deleted: group kvcache.old/stale")
    assert changed_group.splitlines() == [
        "updated: group kvcache.alerts",
        '  ~ rule "KVCacheTargetDown" for: 90.0 -> 300.0',
        '  ~ rule "KVCacheTargetDown" annotations.runbook_url: nothing -> there',
        '  ~ rule "KVCacheTargetDown" annotations.summary: A target is down. -> nothing',
    ]
    assert list(server.groups["", "kvcache"]) == ["kvcache.recording", "kvcache.alerts"]


def test_a_dry_run_only_reads(server: FakeRuler) -> None:
    assert actions(ruler(server).publish(groups_of(FILES), dry_run=True)) == ["create", "create"]
    server.groups["", "kvcache"]["old"] = {"name": "old", "rules": []}
    changes = ruler(server).publish(groups_of(FILES), dry_run=True)
    assert changes[-1].text(dry_run=True) == "would delete: group old"
    assert server.writes == []


def test_other_namespaces_are_not_touched_and_a_foreign_one_is_refused(server: FakeRuler) -> None:
    theirs = {"theirs": {"name": "theirs", "rules": []}}
    server.groups["", "default"] = dict(theirs)
    ruler(server).publish(groups_of(FILES))
    with pytest.raises(
        PublishError, match=r"--namespace default: holds rule groups that are not ours \(theirs\)"
    ):
        ruler(server, "default").publish(groups_of(FILES))
    assert server.groups["", "default"] == theirs


def test_a_refused_rule_says_which_group_and_why(server: FakeRuler) -> None:
    server.fail(Answer(404, "no rule groups found"), Answer(400, "could not parse expression: 1:5"))
    with pytest.raises(
        PublishError, match=r"group kvcache\.recording: POST .*400 .*could not parse expression"
    ):
        Ruler(Client(server.url + server.prefix.removesuffix("/config/v1/rules"))).publish(groups_of(FILES))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(404, "404 page not found"), r"404 Not Found: .*check --url and whether this API is enabled"),
        (Answer(200, "<html>: ["), "expected YAML of rule groups: is --url right"),
        (Answer(200, "a string"), "expected YAML of rule groups: is --url right"),
    ],
)
def test_a_wrong_address_is_said_to_be_wrong(answer: Answer, message: str) -> None:
    with closing(ApiServer(lambda _: answer)) as server, pytest.raises(PublishError, match=message):
        Ruler(Client(server.url)).publish(groups_of(FILES))


def test_groups_of_one_name_are_refused() -> None:
    with pytest.raises(PublishError, match=r"several rule groups are called kvcache\.alerts"):
        groups_of({"a": ALERTING, "b": ALERTING})


def test_the_command_sends_tenant_and_token(
    server: FakeRuler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "rules", lambda _, *, direct: FILES)
    monkeypatch.setenv("KVCACHE_TOKEN", "abc")
    assert main(["publish", "mimir", "--url", server.url, "--tenant", "team-a"]) == 0
    assert capsys.readouterr().out.endswith("done: 2 create\n")
    assert set(server.groups["team-a", "kvcache"]) == {"kvcache.recording", "kvcache.alerts"}
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer abc"}


def test_files_are_written_once_into_a_folder_or_one_file(tmp_path: Path) -> None:
    assert actions(prometheus.write(tmp_path, FILES)) == ["create", "create"]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == FILES
    assert actions(prometheus.write(tmp_path, FILES)) == ["unchanged", "unchanged"]
    one = tmp_path / "kvcache.yaml"
    assert actions(prometheus.write(one, FILES)) == ["create"]
    assert groups_of({"": one.read_text()}) == groups_of(FILES)
    changed = FILES | {"alerting.yaml": ALERTING.replace("== 0", "< 1")}
    (change,) = prometheus.write(one, changed, dry_run=True)
    assert change.details == (
        '~ rule "KVCacheTargetDown" expr: kvcache_target_up == 0\n -> kvcache_target_up < 1\n',
    )
    assert groups_of({"": one.read_text()}) == groups_of(FILES)


def test_a_written_file_can_be_read_by_prometheus_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "kvcache.yml"
    prometheus.write(path, FILES)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o640)
    prometheus.write(path, {"recording.yaml": RECORDING})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UsageError, match=r"expected an existing folder or a file ending in \.yaml"):
        prometheus.write(tmp_path / "missing", FILES)
    with pytest.raises(UsageError, match=r"there is no folder .*/missing; create it first"):
        prometheus.write(tmp_path / "missing" / "kvcache.yml", FILES)


@pytest.mark.parametrize(
    ("status", "text", "message"),
    [
        (
            403,
            "Lifecycle API is not enabled.",
            "the rules are written. Start Prometheus with --web.enable-lif",
        ),
        (
            500,
            "failed to reload config: bad rule",
            "failed to reload config: bad rule.*still runs the old ones",
        ),
    ],
)
def test_a_refused_reload_says_what_state_this_leaves(status: int, text: str, message: str) -> None:
    with closing(ApiServer(lambda _: Answer(status, text))) as server:
        with pytest.raises(PublishError, match=message):
            prometheus.reload(Client(server.url))
        assert len(server.requests) == 1


def test_the_command_reloads_but_not_in_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "rules", lambda _, *, direct: FILES)
    with closing(ApiServer(lambda _: Answer(200))) as server:
        command = ["publish", "prometheus", "--file", str(tmp_path), "--reload-url", server.url]
        assert main([*command, "--dry-run"]) == 0
        assert server.requests == []
        assert list(tmp_path.iterdir()) == []
        assert main(command) == 0
        assert [(r.method, r.path) for r in server.requests] == [("POST", "/-/reload")]
    assert capsys.readouterr().out.endswith(f"done: 2 create\nreloaded: {server.url}\n")
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
