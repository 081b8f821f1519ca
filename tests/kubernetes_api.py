"""A Kubernetes API server in miniature: real HTTP, selectors, versions, pages, watches and their failures.

It knows pods and endpoint slices; kubectl and lightkube work with it (test_kubernetes_api.py).
"""

import base64
import copy
import json
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

Object = dict[str, Any]
Key = tuple[str, str, str]
KINDS = {"pods": ("v1", "Pod"), "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice")}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?"
)
_TERM = re.compile(
    r"\s*(?:!\s*(?P<absent>[\w./-]+)|(?P<key>[\w./-]+)\s*(?:"
    r"(?P<op>==|=|!=|<|>)\s*(?P<value>[\w.-]*)|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?)\s*"
)


def matches(selector: str, labels: dict[str, str]) -> bool:
    """Whether labels satisfy a label selector; raises ValueError if it is none."""
    position, holds = 0, True
    while position < len(selector):
        term = _TERM.match(selector, position)
        if term is None or term.end() == position:
            raise ValueError(f"unable to parse requirement: {selector}")
        holds = holds and _holds(term, labels)
        position = term.end()
        if position < len(selector) and selector[position] != ",":
            raise ValueError(f"unable to parse requirement: {selector}")
        position += 1
    return holds


def _holds(term: re.Match[str], labels: dict[str, str]) -> bool:
    if term["absent"]:
        return term["absent"] not in labels
    found = labels.get(term["key"])
    if term["set"]:
        values = {value.strip() for value in term["values"].split(",")}
        return (found in values) == (term["set"] == "in") if found is not None else term["set"] == "notin"
    if term["op"] in ("<", ">"):
        return found is not None and (int(found) < int(term["value"])) == (term["op"] == "<")
    if term["op"] == "!=":
        return found != term["value"]
    return found is not None if term["op"] is None else found == term["value"]


@dataclass
class Change:
    version: int
    plural: str
    before: Object | None
    after: Object | None


@dataclass
class Query:
    """One request for a collection."""

    plural: str
    namespace: str
    selector: str
    fields: str = ""

    def takes(self, item: Object | None) -> bool:
        if item is None or self.namespace not in ("", item["metadata"]["namespace"]):
            return False
        wanted = dict(part.split("=") for part in self.fields.split(",") if part)
        metadata = item["metadata"]
        return matches(self.selector, metadata.get("labels", {})) and all(
            metadata[key.removeprefix("metadata.")] == value for key, value in wanted.items()
        )


@dataclass
class Rules:
    """How the server misbehaves; to be changed at any time."""

    token: str = ""
    """What requests must carry; "" lets all in."""
    forbidden: set[tuple[str, str, str]] = field(default_factory=set)
    """Verb, plural and namespace ("" is all) that nobody may."""
    throttled: int = 0
    """How many of the next requests get 429."""
    retry_after: str = "1"
    gone_as_event: bool = True
    """Versions that are too old: 410 as an event of the watch, else as the status of the answer."""
    continue_tokens_last: bool = True
    empty_as_null: bool = False
    """As servers write a list of nothing that do not take care."""


class KubernetesApi:
    """A server from `with` on; `put` and `delete` change what it holds."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.rules = Rules()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Verb, path and parameters of everything that was asked, in order."""
        self.changed = threading.Condition(threading.RLock())
        self.version = 100
        self._objects: dict[Key, Object] = {}
        self._changes: list[Change] = []
        self._oldest = 0
        """The version up to which changes are forgotten."""
        self._pages: dict[str, tuple[list[Object], int]] = {}
        self._bookmarked = 0
        self.watches: set[_Handler] = set()
        self._context = context
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        if self._context is not None:
            self._server.socket = self._context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            self.cut()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Nobody listens, and every watch is cut."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def cut(self, last: bytes = b"") -> None:
        """End all watches without an orderly end, after these last bytes."""
        with self.changed:
            for watch in tuple(self.watches):
                watch.cut(last)

    def send(self, line: bytes) -> None:
        """Any bytes as an event to all watches."""
        with self.changed:
            for watch in tuple(self.watches):
                watch.chunk(line)

    def bookmark(self) -> None:
        """Tell all watches that ask for it the newest version."""
        with self.changed:
            self._bookmarked = self.version
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget all changes: watches cannot be resumed from before now."""
        with self.changed:
            self._changes.clear()
            self._oldest = self.version

    def put(self, item: Object, plural: str = "pods") -> Object:
        """Create or replace."""
        with self.changed:
            item = copy.deepcopy(item)
            key = (plural, item["metadata"]["namespace"], item["metadata"]["name"])
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            item["metadata"].setdefault("creationTimestamp", "2026-11-29T10:00:00Z")
            self._record(plural, self._objects.get(key), item)
            self._objects[key] = item
            return item

    def delete(self, namespace: str, name: str, plural: str = "pods") -> Object | None:
        with self.changed:
            before = self._objects.pop((plural, namespace, name), None)
            if before is not None:
                self.version += 1
                last = copy.deepcopy(before)
                last["metadata"]["resourceVersion"] = str(self.version)
                self._record(plural, last, None)
            return before

    def get(self, namespace: str, name: str, plural: str = "pods") -> Object | None:
        return self._objects.get((plural, namespace, name))

    def asked(self, verb: str) -> list[dict[str, str]]:
        """The parameters of every request of this verb."""
        return [parameters for asked, _, parameters in list(self.requests) if asked == verb]

    def page(self, query: Query, limit: int, token: str) -> tuple[list[Object], int, str] | None:
        """Items, version and token of the next page; None if the token has expired."""
        with self.changed:
            if token:
                if token not in self._pages or not self.rules.continue_tokens_last:
                    return None
                items, version = self._pages.pop(token)
            else:
                held = sorted((key, item) for key, item in self._objects.items() if key[0] == query.plural)
                items, version = [item for _, item in held if query.takes(item)], self.version
            if not limit or len(items) <= limit:
                return items, version, ""
            rest = base64.urlsafe_b64encode(f"{version}/{len(items)}/{time.monotonic()}".encode()).decode()
            self._pages[rest] = (items[limit:], version)
            return items[:limit], version, rest

    def is_gone(self, version: int) -> bool:
        return version < self._oldest

    def events(self, query: Query, after: int) -> list[tuple[int, str, Object]]:
        """What a watch of this query sees of the changes after a version."""
        seen: list[tuple[int, str, Object]] = []
        for change in self._changes:
            if change.version > after and change.plural == query.plural:
                was, is_now = query.takes(change.before), query.takes(change.after)
                if is_now and change.after is not None:
                    seen.append((change.version, "MODIFIED" if was else "ADDED", change.after))
                elif was and change.before is not None:
                    # The last state, or the one that left the selector, at the version of the change.
                    last = copy.deepcopy(change.after or change.before)
                    seen.append((change.version, "DELETED", last))
        return seen

    def bookmark_after(self, version: int) -> int:
        return self._bookmarked if self._bookmarked > version else 0

    def _record(self, plural: str, before: Object | None, after: Object | None) -> None:
        self._changes.append(Change(self.version, plural, before, after))
        self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.path.rstrip("/") in DISCOVERY:
            self.answer(200, DISCOVERY[parts.path.rstrip("/")])
            return
        match = self._known(parts.path)
        if match is None:
            return
        is_watch = parameters.get("watch") in ("true", "1")
        verb = "get" if match["name"] else "watch" if is_watch else "list"
        if not self._allowed(verb, match, parameters):
            return
        query = Query(
            match["plural"],
            match["namespace"] or "",
            parameters.get("labelSelector", ""),
            parameters.get("fieldSelector", ""),
        )
        try:
            matches(query.selector, {})
        except ValueError as error:
            self.status(400, "BadRequest", str(error))
            return
        if match["name"]:
            self._one(self.api.get(query.namespace, match["name"], query.plural))
        elif is_watch:
            self._watch(query, parameters)
        else:
            self._list(query, parameters)

    def do_POST(self) -> None:
        if match := self._known(urlsplit(self.path).path):
            item = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            item["metadata"].setdefault("namespace", match["namespace"])
            self.answer(201, self.api.put(item, match["plural"]))

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if match := self._known(urlsplit(self.path).path):
            self._one(self.api.delete(match["namespace"], match["name"], match["plural"]))

    def _known(self, path: str) -> re.Match[str] | None:
        match = _PATH.fullmatch(path)
        if match is None or KINDS.get(match["plural"], ("",))[0] != "/".join(
            filter(None, (match["group"], "v1"))
        ):
            self.status(404, "NotFound", "the server could not find the requested resource")
            return None
        return match

    def _allowed(self, verb: str, match: re.Match[str], parameters: dict[str, str]) -> bool:
        rules = self.api.rules
        self.api.requests.append((verb, self.path.partition("?")[0], parameters))
        if rules.throttled:
            rules.throttled -= 1
            self.status(429, "TooManyRequests", "too many requests", {"Retry-After": rules.retry_after})
        elif rules.token and self.headers.get("Authorization") != f"Bearer {rules.token}":
            self.status(401, "Unauthorized", "Unauthorized")
        elif (verb, match["plural"], match["namespace"] or "") in rules.forbidden:
            self.status(403, "Forbidden", f"User cannot {verb} resource {match['plural']}")
        else:
            return True
        return False

    def _one(self, item: Object | None) -> None:
        if item is None:
            self.status(404, "NotFound", "not found")
        else:
            self.answer(200, item)

    def _list(self, query: Query, parameters: dict[str, str]) -> None:
        page = self.api.page(query, int(parameters.get("limit", "0")), parameters.get("continue", ""))
        if page is None:
            self.status(410, "Expired", "The provided continue parameter is too old")
            return
        items, version, token = page
        api_version, kind = KINDS[query.plural]
        metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
        # As the real one does: items of a list say nothing of their kind.
        bare: list[Object] | None = [
            {k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items
        ]
        if not bare and self.api.rules.empty_as_null:
            bare = None
        self.answer(
            200, {"kind": f"{kind}List", "apiVersion": api_version, "metadata": metadata, "items": bare}
        )

    def _watch(self, query: Query, parameters: dict[str, str]) -> None:
        api = self.api
        start = parameters.get("resourceVersion", "")
        with api.changed:
            after = int(start or "0") or api.version
            gone = api.is_gone(after)
            if gone and not api.rules.gone_as_event:
                self.status(410, "Expired", "too old resource version")
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if gone:
                self.event("ERROR", status(410, "Expired", "too old resource version"))
                self.chunk(b"")
                return
            if start in ("", "0"):
                page = api.page(query, 0, "")
                for item in page[0] if page else ():
                    self.event("ADDED", self.kinded(query.plural, item))
            api.watches.add(self)
        try:
            self._stream(query, parameters, after)
        except OSError:
            self.close_connection = True
        finally:
            with api.changed:
                api.watches.discard(self)

    def _stream(self, query: Query, parameters: dict[str, str], after: int) -> None:
        api, ends_at = self.api, time.monotonic() + float(parameters.get("timeoutSeconds", "1800"))
        bookmarks = parameters.get("allowWatchBookmarks") in ("true", "1")
        while (left := ends_at - time.monotonic()) > 0:
            with api.changed:
                # A client that sends anything here has hung up.
                if self not in api.watches or select.select([self.connection], [], [], 0)[0]:
                    return
                for version, kind, item in api.events(query, after):
                    after = version
                    shown = self.kinded(query.plural, item)
                    shown["metadata"] = shown["metadata"] | {"resourceVersion": str(version)}
                    self.event(kind, shown)
                if bookmarks and (version := api.bookmark_after(after)):
                    after = version
                    self.event("BOOKMARK", self.kinded(query.plural, {
                        "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
                        "spec": {"containers": None}, "status": {},
                    }))  # fmt: skip
                api.changed.wait(min(left, 0.2))
        self.chunk(b"")

    @staticmethod
    def kinded(plural: str, item: Object) -> Object:
        api_version, kind = KINDS[plural]
        return {"kind": kind, "apiVersion": api_version, **item}

    def event(self, kind: str, item: Object) -> None:
        # As Go does, characters beyond ASCII stand as they are; U+2028 and U+2029 do not.
        text = json.dumps({"type": kind, "object": item}, ensure_ascii=False)
        self.chunk(text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode() + b"\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def cut(self, last: bytes) -> None:
        self.api.watches.discard(self)
        self.close_connection = True
        try:
            if last:
                self.chunk(last)
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def status(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        self.answer(code, status(code, reason, message), headers)

    def answer(self, code: int, body: Object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def status(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    }  # fmt: skip


def _resources(group_version: str, plural: str, kind: str, short: list[str]) -> Object:
    return {
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": [{
            "name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind,
            "verbs": ["create", "delete", "get", "list", "watch"], "shortNames": short,
        }],
    }  # fmt: skip


_DISCOVERY_GROUP = {"groupVersion": "discovery.k8s.io/v1", "version": "v1"}
DISCOVERY: dict[str, Object] = {
    "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0", "platform": "linux/amd64"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList", "apiVersion": "v1",
        "groups": [{
            "name": "discovery.k8s.io", "versions": [_DISCOVERY_GROUP], "preferredVersion": _DISCOVERY_GROUP
        }],
    },
    "/api/v1": _resources("v1", "pods", "Pod", ["po"]),
    "/apis/discovery.k8s.io/v1": _resources("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", []),
}  # fmt: skip


def kubeconfig(url: str, *, token: str = "", token_file: str = "", ca_file: str = "") -> str:
    """The text of a kubeconfig (JSON is YAML)."""
    user = ({"token": token} if token else {}) | ({"tokenFile": token_file} if token_file else {})
    cluster = {"server": url} | ({"certificate-authority": ca_file} if ca_file else {})
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": user}],
    })  # fmt: skip


def pod(
    name: str,
    ip: str = "10.0.0.1",
    *,
    namespace: str = "llm",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    ports: list[Object] | None = None,
    ready: str = "True",
    phase: str = "Running",
) -> Object:
    """A pod as the API shows it, with one container; further parts are changed by the test."""
    ports = [{"name": "http", "containerPort": 8000, "protocol": "TCP"}] if ports is None else ports
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {"app": "vllm"},
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai", "ports": ports}]},
        "status": {
            "phase": phase, "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}],
        },
    }  # fmt: skip
