"""Pods and endpoints as targets, found over HTTP from a server that fails as Kubernetes does."""

import copy
import ipaddress
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import wait_until

from certificates import authority
from kubernetes_api import KubernetesApi, Object, kubeconfig, pod
from kvcache_exporter.config import KubernetesDiscovery as Options
from kvcache_exporter.config import TargetGroup, TlsSettings
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.targets import Targets, discovery_of
from kvcache_exporter.targets.kubernetes import KubernetesDiscovery, reflector, session
from kvcache_exporter.targets.kubernetes import discovery as module
from kvcache_exporter.targets.kubernetes.found import ROLES, Port, choose_ports
from kvcache_exporter.targets.kubernetes.reflector import Pauses
from kvcache_exporter.targets.kubernetes.store import Store

SELECTED = Options(namespaces=("llm",), selector="app=vllm")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are tried again soon, and nothing waits for the first list but these tests themselves."""
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(reflector, "_PAUSES", (0.02, 0.04, 0.1))
    monkeypatch.setattr(reflector, "_PAUSES_WHEN_GONE", (0.0, 0.02, 0.1))


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with KubernetesApi() as server:
        yield server


@contextmanager
def found_by(
    api: KubernetesApi, folder: Path, options: Options = SELECTED, **keys: Any
) -> Iterator[KubernetesDiscovery]:
    """A running discovery that has asked once."""
    file = folder / "kubeconfig"
    if options.kubeconfig is None:
        file.write_text(kubeconfig(api.url))
        options = replace(options, kubeconfig=str(file))
    discovery = discovery_of(TargetGroup(kubernetes=options, **keys))
    assert isinstance(discovery, KubernetesDiscovery)
    with closing(discovery):
        answered(discovery)
        yield discovery


def answered(discovery: KubernetesDiscovery) -> None:
    """Begun, and everything asked for once."""
    discovery.refresh(0.0)

    def answers() -> bool:
        # Not any problem: one with an object shows a moment before the list it is in counts.
        return discovery._listed.is_set() or any(watch.problem for watch in discovery._reflectors)

    comes("the first answer", answers)


def names(discovery: KubernetesDiscovery | Targets) -> list[str]:
    return [target.name for target in discovery.targets()]


def watching(api: KubernetesApi, count: int = 1) -> None:
    wait_until("the watch", lambda: len(api.watches) == count, 30.0)


def comes(what: str, check: Callable[[], Any]) -> None:
    wait_until(what, check, 30.0)


def test_ready_pods_of_the_namespace_and_the_selector_are_targets(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(pod("vllm-0"))
    api.put(pod("vllm-1", "fd00::1"))
    api.put(pod("other", labels={"app": "web"}))
    api.put(pod("vllm-0", namespace="elsewhere"))
    with found_by(api, tmp_path, engine="vllm", path="/m", labels=(("cluster", "a"),)) as discovery:
        assert [(t.name, t.namespace, t.url) for t in discovery.targets()] == [
            ("llm/vllm-0", "llm", "http://10.0.0.1:8000/m"),
            ("llm/vllm-1", "llm", "http://[fd00::1]:8000/m"),
        ]
        assert {(t.engine, t.labels) for t in discovery.targets()} == {("vllm", (("cluster", "a"),))}
        assert (discovery.failures, discovery.problems) == ({}, ())


@pytest.mark.parametrize(
    ("namespaces", "expected"),
    [
        ((), ["a/p", "b/p", "c/p"]),
        (("a", "b", "a"), ["a/p", "b/p"]),
    ],
)
def test_pods_with_one_address_in_several_namespaces_are_uniquely_named(
    api: KubernetesApi, tmp_path: Path, namespaces: tuple[str, ...], expected: list[str]
) -> None:
    for namespace in "abc":
        api.put(pod("p", "10.0.0.1", namespace=namespace))
    with found_by(api, tmp_path, Options(namespaces=namespaces)) as discovery:
        assert names(discovery) == expected


def unready(change: Callable[[Object], Any]) -> Object:
    made = pod("vllm-0")
    change(made)
    return made


@pytest.mark.parametrize(
    "item",
    [
        pod("vllm-0", ready="False"),
        pod("vllm-0", phase="Pending"),
        pod("vllm-0", phase="Failed"),
        pod("vllm-0", ""),
        unready(lambda made: made["status"].pop("conditions")),
        unready(lambda made: made["metadata"].update(deletionTimestamp="2026-11-29T10:00:00Z")),
    ],
    ids=["not ready", "pending", "failed", "no address", "no conditions", "terminating"],
)
def test_a_pod_that_takes_no_requests_is_no_target_until_it_does(
    api: KubernetesApi, tmp_path: Path, item: Object
) -> None:
    api.put(item)
    with found_by(api, tmp_path) as discovery:
        assert names(discovery) == []
        watching(api)
        api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        api.put(item)
        comes("no target", lambda: names(discovery) == [])
        assert discovery.failures == {}


HTTP, METRICS, NAMELESS = Port("http", 8000), Port("metrics", 9090), Port("", 7000)


@pytest.mark.parametrize(
    ("ports", "wanted", "expected"),
    [
        ([HTTP, METRICS], None, [8000]),
        ([METRICS, NAMELESS], None, [9090]),
        ([NAMELESS], None, [7000]),
        ([NAMELESS, NAMELESS], None, [7000]),
        ([HTTP, METRICS], "metrics", [9090]),
        ([HTTP], "1234", [1234]),
        ([], "1234", [1234]),
        ([HTTP, Port("http", 8001)], "http", [8000, 8001]),
    ],
)
def test_which_port_is_scraped(ports: list[Port], wanted: str | None, expected: list[int]) -> None:
    assert choose_ports(ports, wanted) == expected


def test_a_pod_without_the_port_is_told_once_and_counted_once(
    api: KubernetesApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api.put(pod("vllm-0", ports=[{"containerPort": 1}, {"name": "x", "containerPort": 2}]))
    api.put(pod("vllm-1", "10.0.0.2"))
    with found_by(api, tmp_path) as discovery:
        assert names(discovery) == ["llm/vllm-1"]
        watching(api)
        changed = pod("vllm-0", ports=[{"containerPort": 1}, {"name": "x", "containerPort": 2}])
        changed["status"]["hostIP"] = "10.1.1.1"
        api.put(changed)
        api.delete("llm", "vllm-1")
        comes("the deletion", lambda: names(discovery) == [])
        problem = (
            "llm/vllm-0: no TCP port named http or metrics, it has (no name) 1, x 2; "
            "set port or the annotation kvcache-exporter.io/port"
        )
        assert (discovery.problems, discovery.failures) == ((problem,), {"invalid": 1})
        assert [problem in record.getMessage() for record in caplog.records] == [True]


def test_a_selector_that_takes_in_everything_does_not_fill_the_log(
    api: KubernetesApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        api.put(pod(f"web-{number}", ports=[]))
    with found_by(api, tmp_path) as discovery:
        comes("every count", lambda: discovery.failures == {"invalid": 50})
        assert len(discovery.problems) == 20
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == 21
        assert "30 more objects cannot be used; narrow the selector" in messages[-1]


def test_sidecars_have_ports_and_several_ports_of_a_name_are_several_targets(
    api: KubernetesApi, tmp_path: Path
) -> None:
    item = pod("vllm-0")
    port = {"name": "http", "protocol": "TCP"}
    item["spec"]["initContainers"] = [
        {"name": "proxy", "restartPolicy": "Always", "ports": [port | {"containerPort": 8001}]},
        {"name": "once", "ports": [port | {"containerPort": 8002}]},
    ]
    item["spec"]["containers"][0]["ports"].append(port | {"protocol": "UDP", "containerPort": 8003})
    api.put(item)
    with found_by(api, tmp_path) as discovery:
        assert {t.name: t.url for t in discovery.targets()} == {
            "llm/vllm-0:8000": "http://10.0.0.1:8000/metrics",
            "llm/vllm-0:8001": "http://10.0.0.1:8001/metrics",
        }


def annotated(**values: str) -> Object:
    return pod("vllm-0", annotations={f"kvcache-exporter.io/{key}": text for key, text in values.items()})


def test_annotations_override_what_the_group_says(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(annotated(port="9000", path="/stats", scheme="https", engine="sglang", scrape="true"))
    with found_by(api, tmp_path, engine="vllm") as discovery:
        (target,) = discovery.targets()
        assert (target.url, target.engine) == ("https://10.0.0.1:9000/stats", "sglang")
        watching(api)
        api.put(annotated(scrape="false", port="bad port"[:3]))
        comes("the opt-out", lambda: names(discovery) == [])
        assert discovery.failures == {}


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        ("scrape", "no", "one of true, false"),
        ("port", "0", "a number from 1 to 65535, or the name of a port such as http"),
        ("port", "HTTP", "a number from 1 to 65535, or the name of a port such as http"),
        ("path", "metrics", "a path such as /metrics"),
        ("path", "/m?x", "a path such as /metrics"),
        ("scheme", "ftp", "one of http, https"),
        ("scheme", "http", "https as in its group; credentials would be sent in clear text"),
        ("engine", "vlm", "one of auto, " + ", ".join(engine.name for engine in ENGINES)),
    ],
)
def test_a_bad_annotation_is_told_and_the_others_go_on(
    api: KubernetesApi, tmp_path: Path, annotation: str, text: str, expected: str
) -> None:
    api.put(annotated(**{annotation: text}))
    api.put(pod("vllm-1", "10.0.0.2"))
    with found_by(api, tmp_path, tls=TlsSettings()) as discovery:
        assert names(discovery) == ["llm/vllm-1"]
        assert discovery.failures == {"invalid": 1}
        told = f'llm/vllm-0: the annotation kvcache-exporter.io/{annotation} is "{text}", expected {expected}'
        assert discovery.problems == (told,)


def test_a_misspelt_annotation_is_told(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(annotated(prot="8000"))
    with found_by(api, tmp_path) as discovery:
        assert "the annotation kvcache-exporter.io/prot is unknown" in discovery.problems[0]


def test_with_opt_in_only_annotated_pods_are_targets(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(annotated(scrape="true"))
    api.put(pod("vllm-1"))
    with found_by(api, tmp_path, replace(SELECTED, opt_in=True)) as discovery:
        assert names(discovery) == ["llm/vllm-0"]


def test_an_object_of_another_shape_is_told_and_the_others_go_on(api: KubernetesApi, tmp_path: Path) -> None:
    odd = pod("vllm-0")
    odd["spec"]["containers"] = "none"
    api.put(odd)
    api.put(pod("vllm-1"))
    with found_by(api, tmp_path) as discovery:
        assert names(discovery) == ["llm/vllm-1"]
        assert discovery.problems[0].startswith("llm/vllm-0: the object is not understood: Expected `array`")


def endpoint_slice(name: str, endpoints: list[Object], ports: list[Object] | None, **metadata: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "llm", "labels": {"app": "vllm"}, **metadata},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    }


def endpoint(address: str, of: str = "", **conditions: bool) -> Object:
    reference = {"targetRef": {"kind": "Pod", "name": of, "namespace": "llm"}} if of else {}
    return {"addresses": [address], "conditions": conditions, **reference}


def test_ready_endpoints_are_targets_called_by_their_pods(api: KubernetesApi, tmp_path: Path) -> None:
    http = [{"name": "http", "port": 8000, "protocol": "TCP"}]
    members = [
        endpoint("10.0.0.1", "vllm-0", ready=True),
        endpoint("10.0.0.2", "vllm-1", ready=False),
        endpoint("10.0.0.3", "vllm-2", ready=True, terminating=True),
        endpoint("10.0.0.4"),
    ]
    api.put(endpoint_slice("s-4", members, http), "endpointslices")
    api.put(endpoint_slice("s-6", [endpoint("fd00::1", "vllm-0", ready=True)], http), "endpointslices")
    api.put(endpoint_slice("empty", None, None), "endpointslices")  # type: ignore[arg-type]
    with found_by(api, tmp_path, replace(SELECTED, role="endpointslice", port="http")) as discovery:
        expected = {
            "llm/10.0.0.4": "http://10.0.0.4:8000/metrics",
            "llm/vllm-0": "http://10.0.0.1:8000/metrics",
        }
        assert {t.name: t.url for t in discovery.targets()} == expected
        assert discovery.problems == ()
        watching(api)
        api.delete("llm", "s-4", "endpointslices")
        left = {"llm/vllm-0": "http://[fd00::1]:8000/metrics"}
        comes("the other address", lambda: {t.name: t.url for t in discovery.targets()} == left)


def test_a_cut_watch_goes_on_where_it_was(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(pod("vllm-0"))
    with found_by(api, tmp_path) as discovery:
        watching(api)
        added = api.put(pod("vllm-1", "10.0.0.2"))
        comes("the addition", lambda: names(discovery) == ["llm/vllm-0", "llm/vllm-1"])
        api.cut()
        api.delete("llm", "vllm-0")
        comes("the deletion", lambda: names(discovery) == ["llm/vllm-1"])
        assert len(api.asked("list")) == 1
        assert api.asked("watch")[1]["resourceVersion"] == added["metadata"]["resourceVersion"]
        assert (discovery.failures, discovery.problems) == ({"truncated": 1}, ())


def test_a_bookmark_saves_a_new_list(api: KubernetesApi, tmp_path: Path) -> None:
    with found_by(api, tmp_path) as discovery:
        watching(api)
        for number in range(5):
            api.put(pod(f"web-{number}", labels={"app": "web"}))
        api.bookmark()
        api.put(pod("vllm-0"))
        comes("what came after the bookmark", lambda: names(discovery) == ["llm/vllm-0"])
        api.put(pod("web-5", labels={"app": "web"}))
        api.bookmark()
        reflectors = discovery._reflectors
        comes("the bookmark", lambda: reflectors[0]._version == str(api.version))
        api.compact()
        api.cut()
        watching(api)
        assert len(api.asked("list")) == 1


@pytest.mark.parametrize("as_event", [True, False])
def test_after_410_everything_is_listed_again(api: KubernetesApi, tmp_path: Path, as_event: bool) -> None:
    api.rules.gone_as_event = as_event
    api.put(pod("vllm-0"))
    api.put(pod("vllm-1"))
    with found_by(api, tmp_path) as discovery:
        watching(api)
        with api.changed:
            api.cut()
            api.delete("llm", "vllm-0")
            api.put(pod("vllm-2"))
            api.compact()
        comes("what the list says", lambda: names(discovery) == ["llm/vllm-1", "llm/vllm-2"])
        assert len(api.asked("list")) == 2
        assert discovery.failures == {"truncated": 1}, "410 is part of the protocol and no failure"


def test_a_watch_that_ends_in_time_is_followed_by_another(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_WATCH_SECONDS", (1, 1))
    with found_by(api, tmp_path) as discovery:
        comes("the third watch", lambda: len(api.asked("watch")) == 3)
        api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        assert (len(api.asked("list")), discovery.failures) == (1, {})


def test_while_the_server_is_away_the_last_known_targets_are_kept(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(pod("vllm-0"))
    with found_by(api, tmp_path) as discovery:
        watching(api)
        with api.outage():
            comes("several tries", lambda: discovery.failures["connection"] >= 3)
            assert names(discovery) == ["llm/vllm-0"]
            assert "pods in namespace llm: the API server cannot be reached" in discovery.problems[0]
            api.delete("llm", "vllm-0")
            api.put(pod("vllm-1", "10.0.0.2"))
        comes("the change meanwhile", lambda: names(discovery) == ["llm/vllm-1"])
        comes("being well", lambda: discovery.problems == ())


def test_the_first_refresh_waits_for_the_first_list(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 20.0)
    api.put(pod("vllm-0"))
    (tmp_path / "k").write_text(kubeconfig(api.url))
    options = replace(SELECTED, kubeconfig=str(tmp_path / "k"))
    with closing(KubernetesDiscovery(TargetGroup(kubernetes=options))) as discovery:
        discovery.refresh(0.0)
        assert names(discovery) == ["llm/vllm-0"]


def test_a_server_that_comes_late_is_found(tmp_path: Path) -> None:
    api = KubernetesApi()
    api.put(pod("vllm-0"))
    api.start()
    api.stop()
    with found_by(api, tmp_path) as discovery:
        assert names(discovery) == []
        api.start()
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        api.stop()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json\n", "invalid"),
        (b'{"type": "MODIFIED"}\n', "invalid"),
        (b'{"type": "MODIFIED", "object": {"metadata": {}}}\n', "invalid"),
        (b'{"type": "RENAMED", "object": {"metadata": {"name": "x"}}}\n', "invalid"),
        (b'{"type": "ERROR", "object": {"kind": "Status", "code": 500}}\n', "http_status"),
        (b"\xff\xfe\n", "invalid"),
    ],
)
def test_an_event_that_makes_no_sense_is_counted_and_nothing_is_missed(
    api: KubernetesApi, tmp_path: Path, line: bytes, reason: str
) -> None:
    with found_by(api, tmp_path) as discovery:
        watching(api)
        with api.changed:
            api.send(line)
            api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        comes("the count", lambda: discovery.failures == {reason: 1})
        assert len(api.asked("list")) == 2


def test_an_event_that_is_cut_short_is_asked_for_again(api: KubernetesApi, tmp_path: Path) -> None:
    with found_by(api, tmp_path) as discovery:
        watching(api)
        with api.changed:
            api.cut(b'{"type": "ADDED", "obj')
            api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        assert discovery.failures == {"truncated": 1}


def test_any_character_may_stand_in_an_annotation(api: KubernetesApi, tmp_path: Path) -> None:
    with found_by(api, tmp_path) as discovery:
        watching(api)
        api.put(pod("vllm-0", annotations={"note": "a\u0085b\u2028c\u000bd\u00e9"}))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        assert discovery.failures == {}


def test_a_list_of_nothing_may_be_null(api: KubernetesApi, tmp_path: Path) -> None:
    api.rules.empty_as_null = True
    with found_by(api, tmp_path) as discovery:
        watching(api)
        api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        assert discovery.failures == {}


def test_pauses_grow_and_begin_anew_after_half_a_minute_without_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(reflector, "time", SimpleNamespace(monotonic=lambda: now))
    pauses = Pauses((1.0, 10.0, 100.0))

    def after(calm: float) -> float:
        nonlocal now
        now += calm
        pause = pauses.next()
        now += pause
        return pause

    for calm, expected in [(0, 1), (0, 10), (20, 100), (29, 100), (31, 1), (0, 10), (60, 1), (60, 1)]:
        assert 0.8 * expected <= after(calm) <= 1.2 * expected


def test_long_lists_come_in_pages(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "PAGE_LIMIT", 2)
    for number in range(5):
        api.put(pod(f"vllm-{number}"))
    with found_by(api, tmp_path) as discovery:
        assert names(discovery) == [f"llm/vllm-{number}" for number in range(5)]
        assert [("continue" in asked, asked["limit"]) for asked in api.asked("list")] == [
            (False, "2"),
            (True, "2"),
            (True, "2"),
        ]


def test_pages_that_expire_are_asked_for_all_at_once(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "PAGE_LIMIT", 2)
    api.rules.continue_tokens_last = False
    for number in range(5):
        api.put(pod(f"vllm-{number}"))
    with found_by(api, tmp_path) as discovery:
        assert names(discovery) == [f"llm/vllm-{number}" for number in range(5)]
        assert [sorted(asked) for asked in api.asked("list")] == [
            ["labelSelector", "limit"],
            ["continue", "labelSelector", "limit"],
            ["labelSelector"],
        ]
        assert discovery.failures == {}


FORBIDDEN = (
    "{verb} of pods in namespace {namespace}: HTTP status 403: the account lacks {verb} on pods "
    '(API group ""); grant list and watch by a Role in namespace {namespace}'
)


def test_what_is_forbidden_is_named(api: KubernetesApi, tmp_path: Path) -> None:
    api.rules.forbidden.add(("list", "pods", "a"))
    api.rules.forbidden.add(("watch", "pods", "b"))
    api.put(pod("p", namespace="b"))
    with found_by(api, tmp_path, Options(namespaces=("a", "b"))) as discovery:
        comes("both failures", lambda: len(discovery.problems) == 2)
        assert names(discovery) == ["b/p"]
        assert discovery.problems == (
            FORBIDDEN.format(verb="list", namespace="a"),
            FORBIDDEN.format(verb="watch", namespace="b"),
        )
        assert set(discovery.failures) == {"forbidden"}
        api.rules.forbidden.clear()
        comes("both being well", lambda: discovery.problems == ())


def test_with_the_right_to_list_alone_targets_still_follow_and_the_problem_is_told_once(
    api: KubernetesApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api.rules.forbidden.add(("watch", "pods", "llm"))
    with found_by(api, tmp_path) as discovery:
        comes("several tries", lambda: discovery.failures["forbidden"] >= 3)
        api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        api.delete("llm", "vllm-0")
        comes("its end", lambda: names(discovery) == [])
        assert discovery.problems == (FORBIDDEN.format(verb="watch", namespace="llm"),)
        assert sum("HTTP status 403" in record.getMessage() for record in caplog.records) == 1


def test_the_cluster_wide_right_is_named(api: KubernetesApi, tmp_path: Path) -> None:
    api.rules.forbidden.add(("list", "endpointslices", ""))
    with found_by(api, tmp_path, Options(role="endpointslice")) as discovery:
        assert discovery.problems[0].endswith(
            'list on endpointslices (API group "discovery.k8s.io"); grant list and watch by a ClusterRole'
        )


def test_the_server_is_left_alone_for_as_long_as_it_asks(api: KubernetesApi, tmp_path: Path) -> None:
    api.rules.throttled = 1
    api.put(pod("vllm-0"))
    began = time.monotonic()
    with found_by(api, tmp_path) as discovery:
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        assert 1.0 <= time.monotonic() - began < 20.0
        assert discovery.failures == {"throttled": 1}


def test_a_selector_that_the_server_refuses_is_told(api: KubernetesApi, tmp_path: Path) -> None:
    with found_by(api, tmp_path, replace(SELECTED, selector="a in in")) as discovery:
        assert set(discovery.failures) == {"http_status"}
        assert "HTTP status 400, expected 200; check the selector" in discovery.problems[0]


def with_token(api: KubernetesApi, folder: Path) -> Options:
    """What reads the token that the server wants from the file `token`."""
    (folder / "token").write_text("first")
    (folder / "kubeconfig").write_text(kubeconfig(api.url, token_file=str(folder / "token")))
    api.rules.token = "first"
    return replace(SELECTED, kubeconfig=str(folder / "kubeconfig"))


def test_a_rotated_token_is_taken_up(api: KubernetesApi, tmp_path: Path) -> None:
    with found_by(api, tmp_path, with_token(api, tmp_path)) as discovery:
        watching(api)
        api.rules.token = "second"
        api.cut()
        comes("the refusal", lambda: discovery.failures["credentials"])
        assert "the token or certificate is not accepted" in discovery.problems[0]
        (tmp_path / "token").write_text("second")
        api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        comes("being well", lambda: discovery.problems == ())


def test_a_token_that_is_replaced_in_time_fails_nothing(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_WATCH_SECONDS", (1, 1))
    monkeypatch.setattr(reflector, "_QUICK_SECONDS", 0.0)
    with found_by(api, tmp_path, with_token(api, tmp_path)) as discovery:
        watching(api)
        # The watch in progress was let in with the old one.
        with api.changed:
            (tmp_path / "token").write_text("second")
            api.rules.token = "second"
        comes("another watch", lambda: len(api.asked("watch")) >= 3)
        api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])
        assert (discovery.failures, len(api.asked("list"))) == ({}, 1)


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = tmp_path / "account"
    account.mkdir()
    authority(account).issue("server", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    (account / "ca.pem").rename(account / "ca.crt")
    (account / "token").write_text("from the kubelet")
    (account / "namespace").write_text("monitoring")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "server.pem", account / "server.key")
    monkeypatch.setattr(session, "SERVICE_ACCOUNT", str(account))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with KubernetesApi(context) as api:
        api.rules.token = "from the kubelet"
        api.put(pod("vllm-0"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rpartition(":")[2])
        discovery = KubernetesDiscovery(TargetGroup(kubernetes=SELECTED))
        with closing(discovery):
            answered(discovery)
            assert (names(discovery), discovery.problems) == (["llm/vllm-0"], ())
            watching(api)
            authority(account)
            (account / "ca.pem").replace(account / "ca.crt")
            api.cut()
            comes("the distrust", lambda: discovery.failures["tls"])
            assert "check the cluster's CA" in discovery.problems[0]
            assert names(discovery) == ["llm/vllm-0"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no access to a cluster"),
        ("{", "no access to a cluster"),
        ("{clusters: [], contexts: [], current-context: a}", "Context 'a' not found"),
        ("{clusters: [], contexts: [{name: a, context: {cluster: b}}], current-context: a}", "KeyError: 'b'"),
        ("{clusters: [], contexts: []}", "No current context set"),
    ],
)
def test_an_unusable_kubeconfig_is_told(api: KubernetesApi, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "bad").write_text(text)
    with found_by(api, tmp_path, replace(SELECTED, kubeconfig=str(tmp_path / "bad"))) as discovery:
        comes("the failure", lambda: discovery.problems)
        assert set(discovery.failures) == {"credentials"}
        assert told in discovery.problems[0]
        assert "set kubeconfig or KUBECONFIG" in discovery.problems[0]


def test_outside_a_cluster_it_says_what_is_missing(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    discovery = KubernetesDiscovery(TargetGroup(kubernetes=SELECTED))
    with closing(discovery):
        answered(discovery)
        assert "no access to a cluster: there is no service account in /var/run/" in discovery.problems[0]
        (tmp_path / "env").write_text(kubeconfig(api.url))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "env"))
        api.put(pod("vllm-0"))
        comes("the target", lambda: names(discovery) == ["llm/vllm-0"])


def threads() -> int:
    return sum(thread.name == "discovery kubernetes" for thread in threading.enumerate())


def test_it_ends_at_once_in_the_middle_of_a_watch(api: KubernetesApi, tmp_path: Path) -> None:
    with found_by(api, tmp_path, Options(namespaces=("a", "b", "c"))) as discovery:
        watching(api, 3)
        assert threads() == 1
        began = time.monotonic()
        discovery.close()
        comes("the end", lambda: threads() == 0)
        assert time.monotonic() - began < 10.0
        watching(api, 0)


def test_it_ends_at_once_while_the_server_says_nothing(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        (tmp_path / "k").write_text(kubeconfig(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        discovery = KubernetesDiscovery(
            TargetGroup(kubernetes=replace(SELECTED, kubeconfig=str(tmp_path / "k")))
        )
        discovery.refresh(0.0)
        began = time.monotonic()
        discovery.close()
        comes("the end", lambda: threads() == 0)
        assert time.monotonic() - began < 10.0


def test_one_that_never_began_ends_too() -> None:
    KubernetesDiscovery(TargetGroup(kubernetes=SELECTED)).close()


def test_groups_that_stay_are_not_asked_again_and_others_end(api: KubernetesApi, tmp_path: Path) -> None:
    (tmp_path / "k").write_text(kubeconfig(api.url))
    vllm = TargetGroup(kubernetes=replace(SELECTED, kubeconfig=str(tmp_path / "k")))
    web = TargetGroup(kubernetes=Options(selector="app=web", kubeconfig=str(tmp_path / "k")))
    api.put(pod("vllm-0"))
    api.put(pod("web", labels={"app": "web"}))
    changed = threading.Event()
    with closing(Targets([vllm, web], changed.set)) as targets:
        targets.refresh(0.0)
        comes("both", lambda: names(targets) == ["llm/vllm-0", "llm/web"])
        watching(api, 2)
        targets.use([web])
        targets.refresh(1.0)
        assert (names(targets), threads()) == (["llm/web"], 1)
        assert len(api.asked("list")) == 2
        changed.clear()
        api.delete("llm", "web")
        assert changed.wait(5.0)
        assert names(targets) == []
    assert threads() == 0


def test_pods_that_come_together_are_one_change(api: KubernetesApi, tmp_path: Path) -> None:
    with found_by(api, tmp_path) as discovery:
        watching(api)
        changes: list[int] = []
        discovery.changed = lambda: changes.append(len(discovery.targets()))
        with api.changed:
            for number in range(300):
                api.put(pod(f"vllm-{number}"))
        comes("all", lambda: len(discovery.targets()) == 300)
        comes("the word of it", lambda: changes[-1:] == [300])
        assert len(changes) < 100


def test_nothing_of_kubernetes_is_loaded_without_it() -> None:
    code = "import sys, kvcache_exporter.app; sys.exit('lightkube' in sys.modules or 'httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)
SHAPES = {
    "pod": pod("vllm-0", annotations={"kvcache-exporter.io/port": "8000"}),
    "endpointslice": endpoint_slice(
        "s", [endpoint("10.0.0.1", "vllm-0", ready=True)], [{"name": "http", "port": 8000, "protocol": "TCP"}]
    ),
}


def places(part: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    return [place for key in keys for place in [(*above, key), *places(part[key], (*above, key))]]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), role=st.sampled_from(sorted(SHAPES)))
def test_an_object_with_anything_in_any_place_is_a_target_or_a_problem(
    data: st.DataObject, role: str
) -> None:
    item = copy.deepcopy(SHAPES[role])
    named = {("metadata",), ("metadata", "name"), ("metadata", "namespace")}
    *above, last = data.draw(st.sampled_from([place for place in places(item) if place not in named]))
    owner = item
    for key in above:
        owner = owner[key]
    owner[last] = data.draw(ANYTHING)
    told: list[tuple[str, int]] = []
    group, find = TargetGroup(), ROLES[role].find
    store = Store(
        lambda raw: find(raw, group, Options()), lambda: None, lambda *problem: told.append(problem)
    )
    try:
        raw = msgspec.json.encode(item)
        entries = store.read([raw])
    except msgspec.ValidationError:
        assert "metadata" in above or last == "metadata"
        return
    store.replace(entries)
    assert len(told) == len(store.problems) <= 1
    assert all(len(problem) < 2000 for problem, _ in told)
    assert all(urlsplit(found.target.url).port for found in store.found())


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from("abcd"), st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.booleans()
        ),
        st.tuples(st.just("leave"), st.sampled_from("abcd")),
        st.tuples(st.just("delete"), st.sampled_from("abcd")),
        st.tuples(st.sampled_from(["cut", "compact", "bookmark", "garbage", "half"])),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, as_event=st.booleans())
def test_whatever_happens_the_targets_end_up_as_the_server_has_them(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], as_event: bool
) -> None:
    with KubernetesApi() as api:
        api.rules.gone_as_event = as_event
        api.put(pod("a"))
        with found_by(api, tmp_path_factory.getbasetemp()) as discovery:
            for step in steps:
                act(api, *step)
            expected = truth(api)
            comes("the truth", lambda: [(t.name, t.url) for t in discovery.targets()] == expected)
            api.bookmark()
            time.sleep(0.01)
            assert [(t.name, t.url) for t in discovery.targets()] == expected


def act(api: KubernetesApi, what: str, *arguments: Any) -> None:
    match what, arguments:
        case "put", (name, ip, ready):
            api.put(pod(name, ip, ready=str(ready)))
        case "leave", (name,):
            api.put(pod(name, labels={"app": "other"}))
        case "delete", (name,):
            api.delete("llm", name)
        case "cut", ():
            api.cut()
        case "half", ():
            api.cut(b'{"type":')
        case "garbage", ():
            api.send(b"}\n")
        case "compact", ():
            with api.changed:
                api.cut()
                api.compact()
        case _:
            api.bookmark()


def truth(api: KubernetesApi) -> list[tuple[str, str]]:
    found = (api.get("llm", name) for name in "abcd")
    return [
        (f"llm/{item['metadata']['name']}", f"http://{item['status']['podIP']}:8000/metrics")
        for item in found
        if item and item["metadata"]["labels"]["app"] == "vllm"
        if item["status"]["conditions"][1]["status"] == "True"
    ]
