"""Publishing boards, against a server that keeps folders, boards and versions as Grafana's API documents."""

import json
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from api_server import Answer, ApiServer, Request
from kvcache_exporter.cli import main
from kvcache_exporter.commands import publish
from kvcache_exporter.publish.client import Client, PublishError
from kvcache_exporter.publish.grafana import Grafana


def panel(number: int, title: str, expression: str = "up") -> dict[str, Any]:
    target = {"refId": "A", "expr": expression}
    return {"id": number, "type": "stat", "title": title, "targets": [target], "gridPos": {"x": 0, "y": 0}}


def board(uid: str = "kvcache-overview", *panels: dict[str, Any]) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": f"Title of {uid}",
        "tags": ["kvcache"],
        "schemaVersion": 41,
        "panels": list(panels or (panel(1, "Hit rate"), panel(2, "Evictions"))),
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
    }


class FakeGrafana(ApiServer):
    """Folders, boards with versions, and data sources; 412 for what has moved on."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.boards: dict[str, dict[str, Any]] = {}
        self.folder_of: dict[str, str] = {}
        self.saved_by_others_after_reading = False
        self.folders = {"ops": "Operations"}
        self.datasources = [
            {"id": 1, "uid": "P1", "name": "Prometheus EU", "type": "prometheus"},
            {"id": 2, "uid": "L1", "name": "Loki", "type": "loki"},
        ]

    def answer(self, request: Request) -> Answer:
        match request.method, request.parts:
            case "GET", ["api", "dashboards", "uid", uid]:
                return self._board(uid)
            case "POST", ["api", "dashboards", "db"]:
                return self._save(json.loads(request.body))
            case "GET", ["api", "folders"]:
                return self._folders(request)
            case "GET", ["api", "folders", uid] if uid in self.folders:
                return Answer(200, {"id": 1, "uid": uid, "title": self.folders[uid]})
            case "POST", ["api", "folders"]:
                title = json.loads(request.body)["title"]
                self.folders[f"made{len(self.folders)}"] = title
                return Answer(200, {"id": 9, "uid": f"made{len(self.folders) - 1}", "title": title})
            case "GET", ["api", "datasources", ("uid" | "name") as kind, wanted]:
                found = [d for d in self.datasources if d[kind] == wanted]
                return Answer(200, found[0]) if found else Answer(404, {"message": "Data source not found"})
        return Answer(404, {"message": "Not found"})

    def _board(self, uid: str) -> Answer:
        if uid not in self.boards:
            return Answer(404, {"message": "Dashboard not found"})
        meta = {"isStarred": False, "url": f"/d/{uid}/x", "folderUid": self.folder_of[uid], "slug": "x"}
        answer = Answer(200, {"dashboard": deepcopy(self.boards[uid]), "meta": meta})
        self.boards[uid]["version"] += self.saved_by_others_after_reading
        return answer

    def _folders(self, request: Request) -> Answer:
        limit, page = (int(request.query[key][0]) for key in ("limit", "page"))
        listed = [{"id": 1, "uid": uid, "title": title} for uid, title in self.folders.items()]
        return Answer(200, listed[(page - 1) * limit : page * limit])

    def _save(self, body: dict[str, Any]) -> Answer:
        made = body["dashboard"]
        old = self.boards.get(made["uid"])
        if old and not body["overwrite"] and made.get("version") != old["version"]:
            message = "The dashboard has been changed by someone else"
            return Answer(412, {"message": message, "status": "version-mismatch"})
        version = old["version"] + 1 if old else 1
        self.boards[made["uid"]] = made | {
            "id": old["id"] if old else len(self.boards) + 1,
            "version": version,
        }
        # Without a folder in the request, Grafana moves the board to the root.
        self.folder_of[made["uid"]] = body.get("folderUid", "")
        saved = {"id": 1, "uid": made["uid"], "status": "success", "version": version, "slug": "x"}
        return Answer(200, saved)


@pytest.fixture
def server() -> Iterator[FakeGrafana]:
    with closing(FakeGrafana()) as made:
        yield made


@pytest.fixture
def grafana(server: FakeGrafana) -> Grafana:
    return Grafana(Client(server.url, "glsa_t", sleep=lambda _: None))


def actions(changes: list[Any]) -> list[str]:
    return [change.action for change in changes]


def test_boards_and_their_folder_are_created_and_a_second_run_writes_nothing(
    server: FakeGrafana, grafana: Grafana
) -> None:
    boards = [board(), board("kvcache-pressure")]
    assert actions(grafana.publish(boards, "LLM")) == ["create", "create", "create"]
    assert [json.loads(r.body).get("message") for r in server.writes[1:]] == [
        "kvcache-exporter publish grafana"
    ] * 2
    assert set(server.folder_of.values()) == {"made1"}
    server.requests.clear()
    assert actions(grafana.publish(boards, "LLM")) == ["unchanged", "unchanged"]
    assert server.writes == []


def test_only_the_board_that_differs_is_written(server: FakeGrafana, grafana: Grafana) -> None:
    grafana.publish([board(), board("kvcache-pressure")])
    server.requests.clear()
    changed = board("kvcache-overview", panel(1, "Hit rate", "down"), panel(3, "Queue"))
    _, update = grafana.publish([board("kvcache-pressure"), changed])
    assert update.text(dry_run=True).splitlines() == [
        "would update: board kvcache-overview",
        '  + panel "Queue"',
        '  - panel "Evictions"',
        '  ~ panel "Hit rate" targets[0].expr: up -> down',
    ]
    assert len(server.writes) == 1
    assert server.boards["kvcache-overview"]["version"] == 2


def test_a_setting_that_we_no_longer_make_is_removed(server: FakeGrafana, grafana: Grafana) -> None:
    grafana.publish([board() | {"refresh": "5s"}])
    (change,) = grafana.publish([board()])
    assert change.details == ("refresh: 5s -> nothing",)
    assert "refresh" not in server.boards["kvcache-overview"]


def test_a_newer_grafana_that_hands_boards_out_in_its_own_schema_causes_no_update(
    server: FakeGrafana, grafana: Grafana
) -> None:
    grafana.publish([board()])
    server.boards["kvcache-overview"] |= {"schemaVersion": 43, "preload": False}
    server.boards["kvcache-overview"]["panels"][0] |= {"pluginVersion": "13.0.0"}
    assert actions(grafana.publish([board()])) == ["unchanged"]
    assert actions(grafana.publish([board("kvcache-overview", panel(1, "Other"))])) == ["update"]


def test_a_dry_run_writes_nothing(server: FakeGrafana, grafana: Grafana) -> None:
    changes = grafana.publish([board()], "LLM", "Prometheus EU", dry_run=True)
    assert [change.text(dry_run=True) for change in changes] == [
        'would create: folder "LLM"',
        'would create: board kvcache-overview\n  + panel "Hit rate"\n  + panel "Evictions"',
    ]
    assert server.writes == []


def test_a_board_that_is_not_ours_is_refused_and_nothing_at_all_is_written(
    server: FakeGrafana, grafana: Grafana
) -> None:
    foreign = board("kvcache-pressure") | {"tags": ["team-a"], "id": 7, "version": 3}
    server.boards["kvcache-pressure"], server.folder_of["kvcache-pressure"] = deepcopy(foreign), ""
    with pytest.raises(PublishError, match=r"not ours \(no tag 'kvcache'\): kvcache-pressure; nothing was"):
        grafana.publish([board(), board("kvcache-pressure")])
    assert server.writes == []
    assert server.boards == {"kvcache-pressure": foreign}


def test_own_tags_do_not_lose_the_mark_of_ownership(server: FakeGrafana, grafana: Grafana) -> None:
    mine = board() | {"tags": ["team-a"]}
    grafana.publish([mine])
    assert server.boards["kvcache-overview"]["tags"] == ["team-a", "kvcache"]
    assert actions(grafana.publish([mine])) == ["unchanged"]


def test_a_change_made_meanwhile_is_not_overwritten(server: FakeGrafana, grafana: Grafana) -> None:
    grafana.publish([board()])
    server.saved_by_others_after_reading = True
    with pytest.raises(PublishError, match=r"kvcache-overview: .*412 .*version-mismatch: The dashboard has"):
        grafana.publish([board("kvcache-overview", panel(1, "New"))])
    assert json.loads(server.writes[-1].body)["overwrite"] is False
    assert json.loads(server.writes[-1].body)["dashboard"]["version"] == 1


@pytest.mark.parametrize("wanted", ["ops", "Operations"])
def test_a_folder_is_found_by_uid_and_by_title(wanted: str, server: FakeGrafana, grafana: Grafana) -> None:
    grafana.publish([board()], wanted)
    assert server.folder_of == {"kvcache-overview": "ops"}
    assert server.folders == {"ops": "Operations"}


def test_a_folder_is_found_on_any_page_and_an_ambiguous_title_is_refused(
    server: FakeGrafana, grafana: Grafana
) -> None:
    server.folders |= {f"f{n}": f"Folder {n}" for n in range(1200)}
    grafana.publish([board()], "Folder 1199")
    assert server.folder_of == {"kvcache-overview": "f1199"}
    server.folders["twin"] = "Operations"
    with pytest.raises(PublishError, match="several folders have this title; give one's uid: ops, twin"):
        grafana.publish([board()], "Operations")


def test_without_a_folder_a_board_stays_where_it_is(server: FakeGrafana, grafana: Grafana) -> None:
    grafana.publish([board()], "ops")
    grafana.publish([board("kvcache-overview", panel(1, "New"))])
    assert server.folder_of == {"kvcache-overview": "ops"}
    (moved,) = grafana.publish([board("kvcache-overview", panel(1, "New"))], "LLM")[1:]
    assert moved.details == ("folder: ops -> LLM",)
    assert server.folder_of == {"kvcache-overview": "made1"}


@pytest.mark.parametrize("wanted", ["P1", "Prometheus EU"])
def test_the_data_source_is_found_by_uid_or_name(wanted: str, server: FakeGrafana, grafana: Grafana) -> None:
    grafana.publish([board()], datasource=wanted)
    (variable,) = server.boards["kvcache-overview"]["templating"]["list"]
    assert variable["current"] == {"text": "Prometheus EU", "value": "P1"}


def test_a_data_source_that_cannot_serve_is_refused(server: FakeGrafana, grafana: Grafana) -> None:
    with pytest.raises(PublishError, match="--datasource Nope: Grafana has no data source"):
        grafana.publish([board()], datasource="Nope")
    with pytest.raises(PublishError, match="--datasource Loki: is of type loki, expected prometheus"):
        grafana.publish([board()], datasource="Loki")
    assert server.writes == []


def test_a_server_that_is_no_grafana_is_refused(server: FakeGrafana, grafana: Grafana) -> None:
    server.fail(Answer(200, ["something else"]))
    with pytest.raises(PublishError, match="answer has no dashboard: is --url right"):
        grafana.publish([board()])


def test_a_rate_limit_only_delays(server: FakeGrafana, grafana: Grafana) -> None:
    server.fail(Answer(429, {"message": "rate limited"}, {"Retry-After": "1"}), writes=True)
    assert actions(grafana.publish([board()])) == ["create"]
    assert list(server.boards) == ["kvcache-overview"]


def test_the_command_prints_what_it_did_and_a_token_from_a_file_is_sent(
    server: FakeGrafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "dashboards", lambda _: {"kvcache-overview.json": json.dumps(board())})
    token = tmp_path / "token"
    token.write_text("glsa_abc\n")
    command = ["publish", "grafana", "--url", server.url, "--token-file", str(token)]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("dry run, nothing was changed: 1 create\n")
    assert main(command) == 0
    assert "created: board kvcache-overview" in capsys.readouterr().out
    assert main(command) == 0
    assert capsys.readouterr().out == "unchanged: board kvcache-overview\ndone: 1 unchanged\n"
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer glsa_abc"}


def test_the_command_fails_with_one_line_and_never_the_token(
    server: FakeGrafana, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "dashboards", lambda _: {"kvcache-overview.json": json.dumps(board())})
    monkeypatch.setenv("KVCACHE_TOKEN", "glsa_abc")
    server.fail(Answer(403, {"message": "You need permissions: dashboards:read, glsa_abc"}))
    assert main(["publish", "grafana", "--url", server.url]) == 1
    error = capsys.readouterr().err
    assert "403 Forbidden: the token lacks permission" in error
    assert "glsa_abc" not in error


def test_a_token_file_must_hold_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("")
    assert main(["publish", "grafana", "--url", "http://127.0.0.1:1", "--token-file", str(token)]) == 2
    assert capsys.readouterr().err == (
        f"kvcache-exporter: --token-file {token}: expected the token on one line, in ASCII\n"
    )
