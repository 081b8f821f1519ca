"""Publishes rule groups over the ruler API of Mimir, Cortex and compatible servers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import requests
import yaml

from kvcache_exporter.publish.changes import Change, named_differences
from kvcache_exporter.publish.client import ApiError, Client, PublishError

NAMESPACE = "kvcache"
# Below Mimir's prefix (as in a data source's address), at Mimir's root, and in Cortex.
_ROUTES = ("/config/v1/rules", "/prometheus/config/v1/rules", "/api/v1/rules")
_NO_ROUTE = {404, 405}
_NO_RULES = ("no rule groups found", "group does not exist", "namespace does not exist")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_DURATION_KEYS = ("interval", "for", "keep_firing_for", "query_offset", "evaluation_delay")

Group = dict[str, Any]


def groups_of(files: Mapping[str, str]) -> list[Group]:
    """All groups of generated rule files ({name: YAML}); raises PublishError for a duplicate name."""
    groups: list[Group] = [group for text in files.values() for group in yaml.safe_load(text)["groups"]]
    names = [group["name"] for group in groups]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PublishError(f"several rule groups are called {', '.join(twice)}: a ruler would keep only one")
    return groups


class Ruler:
    """One tenant's namespace of rule groups."""

    def __init__(self, client: Client, namespace: str = NAMESPACE) -> None:
        self._client = client
        self._namespace = namespace
        self._routes: Sequence[str] = _ROUTES

    def publish(self, groups: Sequence[Group], *, dry_run: bool = False) -> list[Change]:
        """Sets the groups that differ and deletes those that are no longer generated."""
        there = {group["name"]: group for group in self._existing()}
        ours = {group["name"]: group for group in groups}
        if self._namespace != NAMESPACE and there and not there.keys() & ours.keys():
            raise PublishError(
                f"--namespace {self._namespace}: holds rule groups that are not ours "
                f"({', '.join(there)}) and would be deleted; give a namespace of its own"
            )
        changes = [_change(group, there.get(group["name"])) for group in groups]
        if not dry_run:
            for group, change in zip(groups, changes, strict=True):
                if change.action != "unchanged":
                    self._set(group)
        stale = [name for name in there if name not in ours]
        for name in stale if not dry_run else ():
            self._send("DELETE", f"/{quote(name, safe='')}")
        return [*changes, *(Change("delete", f"group {name}") for name in stale)]

    def _set(self, group: Group) -> None:
        body = yaml.safe_dump(group, sort_keys=False, allow_unicode=True, width=1000)
        try:
            self._send("POST", "", data=body.encode(), headers={"Content-Type": "application/yaml"})
        except ApiError as error:
            raise PublishError(f"group {group['name']}: {error}") from error

    def _existing(self) -> list[Group]:
        try:
            answer = self._send("GET", "")
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        try:
            found = yaml.safe_load(answer.text) or {}
        except yaml.YAMLError:
            raise PublishError(f"{answer.url}: expected YAML of rule groups: is --url right?") from None
        return self._listed(found, answer.url)

    def _listed(self, found: Any, url: str) -> list[Group]:
        """The groups in an answer: {namespace: [group]}, or a single group as in the documentation."""
        if isinstance(found, dict):
            found = [found] if "name" in found and "rules" in found else found.get(self._namespace, [])
        if not isinstance(found, list) or not all(isinstance(g, dict) and "name" in g for g in found):
            raise PublishError(f"{url}: expected YAML of rule groups: is --url right?")
        return found

    def _send(self, method: str, rest: str, **options: Any) -> requests.Response:
        """Send a request over the first route that the server knows, and remember that route."""
        path = f"/{quote(self._namespace, safe='')}{rest}"
        refusals = []
        for route in self._routes:
            try:
                answer = self._client.send(method, route + path, **options)
            except ApiError as error:
                if error.status not in _NO_ROUTE:
                    raise
                if any(text in error.text for text in _NO_RULES):
                    self._routes = (route,)
                    raise
                refusals.append(error)
            else:
                self._routes = (route,)
                return answer
        raise refusals[0]


def _change(ours: Group, theirs: Group | None) -> Change:
    what = f"group {ours['name']}"
    if theirs is None:
        return Change("create", what, tuple(f'+ rule "{name}"' for name, _ in _rules(ours)))
    details = [*_group_differences(ours, theirs)]
    return Change("update" if details else "unchanged", what, tuple(details))


def _group_differences(ours: Group, theirs: Group) -> Iterator[str]:
    yield from named_differences(
        "group", [(ours["name"], _settings(ours))], [(ours["name"], _settings(theirs))]
    )
    yield from named_differences("rule", _rules(ours), _rules(theirs))
    order, there = ([name for name, _ in _rules(group)] for group in (ours, theirs))
    if order != there and sorted(order) == sorted(there):
        yield "~ order of the rules"


def _settings(group: Group) -> dict[str, Any]:
    return {key: value for key, value in _plain(group).items() if key != "rules"}


def _rules(group: Group) -> list[tuple[str, dict[str, Any]]]:
    return [(str(rule.get("record") or rule.get("alert")), _plain(rule)) for rule in group.get("rules") or []]


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Normalised values: durations in seconds, trimmed texts, no empty values, which rulers add."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key in _DURATION_KEYS:
            made[key] = _seconds(str(value))
        else:
            made[key] = value.strip() if isinstance(value, str) else value
    return {key: value for key, value in made.items() if value}


def _seconds(text: str) -> float:
    return sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))
