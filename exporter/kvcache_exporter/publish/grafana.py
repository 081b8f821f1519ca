"""Publishes boards over Grafana's HTTP API: plans what differs, then applies it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kvcache_exporter.publish.changes import Change, differences, named_differences
from kvcache_exporter.publish.client import ApiError, Client, PublishError

OWNER_TAG = "kvcache"
_SERVERS_OWN = ("id", "version", "panels", "schemaVersion")
_FOLDERS_PER_PAGE = 1000

Board = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of Grafana; without a uid it does not exist yet."""

    uid: str
    title: str


@dataclass(frozen=True, slots=True)
class _Step:
    """The change of one board, and what to send for it."""

    change: Change
    dashboard: dict[str, Any]
    folder_uid: str


class Grafana:
    def __init__(self, client: Client) -> None:
        self._client = client

    def publish(
        self, boards: Sequence[Board], folder: str = "", datasource: str = "", *, dry_run: bool = False
    ) -> list[Change]:
        """Creates and updates `boards`; writes nothing if one of them exists and is not ours."""
        target = self._folder(folder) if folder else None
        source = self._datasource(datasource) if datasource else None
        steps = self._steps([_prepared(board, source) for board in boards], target)
        changes = [step.change for step in steps]
        if target and not target.uid:
            changes.insert(0, Change("create", f'folder "{target.title}"'))
        if not dry_run:
            self._apply(steps, target)
        return changes

    def _steps(self, boards: Sequence[dict[str, Any]], target: Folder | None) -> list[_Step]:
        found = [(board, self._existing(board["uid"])) for board in boards]
        foreign = [
            board["uid"] for board, there in found if there and OWNER_TAG not in _tags(there["dashboard"])
        ]
        if foreign:
            raise PublishError(
                f"Grafana has boards with these uids that are not ours (no tag {OWNER_TAG!r}): "
                f"{', '.join(foreign)}; nothing was changed. Give them another uid or delete them, "
                f"or add the tag {OWNER_TAG!r} to let this command overwrite them"
            )
        return [_step(board, there, target) for board, there in found]

    def _apply(self, steps: Sequence[_Step], target: Folder | None) -> None:
        folder_uid = (target.uid or self._create_folder(target.title)) if target else ""
        for step in steps:
            if step.change.action != "unchanged":
                self._save(step, folder_uid or step.folder_uid)

    def _save(self, step: _Step, folder_uid: str) -> None:
        # With the compared version and without overwriting, Grafana refuses if the board changed meanwhile.
        body = {
            "dashboard": step.dashboard,
            "overwrite": False,
            "message": "kvcache-exporter publish grafana",
        }
        try:
            self._client.post(
                "/api/dashboards/db", json=body | ({"folderUid": folder_uid} if folder_uid else {})
            )
        except ApiError as error:
            raise PublishError(f"{step.dashboard['uid']}: {error}") from error

    def _existing(self, uid: str) -> dict[str, Any] | None:
        answer = self._get_or_none(f"/api/dashboards/uid/{quote(uid, safe='')}")
        if answer is None:
            return None
        if not isinstance(answer, dict) or not isinstance(answer.get("dashboard"), dict):
            raise PublishError(f"board {uid}: Grafana's answer has no dashboard: is --url right?")
        return answer

    def _folder(self, wanted: str) -> Folder:
        found = self._get_or_none(f"/api/folders/{quote(wanted, safe='')}")
        if found is not None:
            return Folder(found["uid"], found["title"])
        titled = [folder for folder in self._folders() if folder["title"] == wanted]
        if len(titled) > 1:
            uids = ", ".join(folder["uid"] for folder in titled)
            raise PublishError(f"--folder {wanted}: several folders have this title; give one's uid: {uids}")
        return Folder(titled[0]["uid"] if titled else "", wanted)

    def _folders(self) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            options = {"limit": _FOLDERS_PER_PAGE, "page": page}
            found = self._client.json(self._client.get("/api/folders", params=options))
            yield from found
            if len(found) < _FOLDERS_PER_PAGE:
                return
            page += 1

    def _create_folder(self, title: str) -> str:
        made = self._client.json(self._client.post("/api/folders", json={"title": title}))
        return str(made["uid"])

    def _datasource(self, wanted: str) -> dict[str, str]:
        for kind in ("uid", "name"):
            found = self._get_or_none(f"/api/datasources/{kind}/{quote(wanted, safe='')}")
            if found is None:
                continue
            if found.get("type") != "prometheus":
                raise PublishError(
                    f"--datasource {wanted}: is of type {found.get('type')}, expected prometheus"
                )
            return {"text": str(found["name"]), "value": str(found["uid"])}
        raise PublishError(f"--datasource {wanted}: Grafana has no data source of this uid or name")

    def _get_or_none(self, path: str) -> Any:
        try:
            return self._client.json(self._client.get(path))
        except ApiError as error:
            if error.status == 404:
                return None
            raise


def _prepared(board: Board, source: dict[str, str] | None) -> dict[str, Any]:
    """The board to send, with our tag and the chosen data source."""
    made = dict(board)
    made["tags"] = [*_tags(board), *([] if OWNER_TAG in _tags(board) else [OWNER_TAG])]
    templating = dict(board.get("templating") or {})
    variables = templating.get("list") or []
    if source:
        templating["list"] = [
            v | {"current": source} if v.get("type") == "datasource" else v for v in variables
        ]
        made["templating"] = templating
    return made


def _step(board: dict[str, Any], there: dict[str, Any] | None, target: Folder | None) -> _Step:
    uid = str(board["uid"])
    if there is None:
        panels = [f'+ panel "{title}"' for title, _ in _panels(board)]
        return _Step(Change("create", f"board {uid}", tuple(panels)), board | {"id": None}, "")
    old, folder_uid = there["dashboard"], str(there.get("meta", {}).get("folderUid") or "")
    details = [*_board_differences(board, old)]
    if target and target.uid != folder_uid:
        details.append(f"folder: {folder_uid or 'the root'} -> {target.title}")
    change = Change("update" if details else "unchanged", f"board {uid}", tuple(details))
    return _Step(change, board | {"id": old.get("id"), "version": old.get("version")}, folder_uid)


def _board_differences(ours: Board, theirs: Board) -> Iterator[str]:
    schemas = [int(board.get("schemaVersion") or 0) for board in (ours, theirs)]
    # A newer Grafana returns a board in its own, newer schema, with keys that we never sent.
    exact = schemas[0] >= schemas[1]
    own, other = ({k: v for k, v in board.items() if k not in _SERVERS_OWN} for board in (ours, theirs))
    yield from differences(own, other, exact=exact)
    if schemas[0] > schemas[1]:
        yield f"schemaVersion: {schemas[1]} -> {schemas[0]}"
    yield from named_differences("panel", _panels(ours), _panels(theirs), exact=exact)


def _panels(board: Board) -> Iterator[tuple[str, dict[str, Any]]]:
    """Panels by title, including those inside collapsed rows."""
    for panel in board.get("panels") or []:
        yield (
            str(panel.get("title") or panel.get("type") or "untitled"),
            {key: value for key, value in panel.items() if key != "panels"},
        )
        yield from _panels(panel)


def _tags(board: Board) -> list[str]:
    return list(board.get("tags") or [])
