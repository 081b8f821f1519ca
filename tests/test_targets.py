"""Who is scraped: static lists, file_sd files and DNS names, and what happens while a look-up fails."""

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dns.message
import dns.resolver
import dns.rrset
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.config import (
    Address,
    DnsDiscovery,
    FileDiscovery,
    HttpSettings,
    TargetGroup,
    TlsSettings,
)
from kvcache_exporter.config.address import EXPECTED
from kvcache_exporter.targets import DISCOVERIES, DiscoveryError, Targets, discovery_of, polled
from kvcache_exporter.targets.dns import NameDiscovery, resolve_addresses
from kvcache_exporter.targets.file import FileSdDiscovery, read_targets
from kvcache_exporter.targets.srv import resolve_srv


def names(discovery: Any) -> list[str]:
    return [target.name for target in discovery.targets()]


def settled(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true in a few seconds."""
    ends_at = time.monotonic() + 5
    while not condition() and time.monotonic() < ends_at:
        time.sleep(0.01)
    return condition()


def test_every_discovery_has_a_key_of_its_own_that_groups_have() -> None:
    keys = [kind.key for kind in DISCOVERIES]
    assert len(set(keys)) == len(keys)
    assert all(hasattr(TargetGroup(), key) for key in keys)


def test_static_addresses_become_targets_with_the_settings_of_their_group() -> None:
    http = HttpSettings(bearer_token_file="/run/t", tls=TlsSettings())
    group = TargetGroup(
        engine="vllm",
        static=("10.0.0.1:8000", "[::1]:8000", "http://h:1/stats"),
        labels=(("zone", "b"), ("cluster", "a")),
        bearer_token_file="/run/t",
        tls=TlsSettings(),
    )
    discovery = discovery_of(group)
    discovery.refresh(0.0)
    assert [(target.name, target.url) for target in discovery.targets()] == [
        ("10.0.0.1:8000", "https://10.0.0.1:8000/metrics"),
        ("[::1]:8000", "https://[::1]:8000/metrics"),
        ("h:1", "http://h:1/stats"),
    ]
    for target in discovery.targets():
        assert (target.engine, target.namespace, target.http) == ("vllm", "", http)
        assert target.labels == (("cluster", "a"), ("zone", "b"))


def test_of_targets_with_one_name_the_first_wins_and_the_other_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = Targets([TargetGroup(engine="vllm", static=("a:1", "b:1")), TargetGroup(static=("a:1",))])
    with caplog.at_level(logging.WARNING):
        found.refresh(0.0)
        found.targets()
        found.targets()
    assert [(t.name, t.engine) for t in found.targets()] == [("a:1", "vllm"), ("b:1", "vllm")]
    message = "target a:1 is found more than once; the first wins, remove the others"
    assert found.errors == (message,)
    assert [record.getMessage() for record in caplog.records] == [f"discovery: {message}"]


def group_of(path: Path | str, **keys: Any) -> TargetGroup:
    return TargetGroup(file=FileDiscovery(path=str(path), refresh=10.0), **keys)


def write(file: Path, document: Any) -> None:
    """As Prometheus asks: a complete file, moved into place."""
    made = file.with_suffix(".new")
    made.write_text(json.dumps(document) if file.suffix == ".json" else yaml.safe_dump(document))
    made.replace(file)


@pytest.mark.parametrize("name", ["t.json", "t.yml", "t.yaml"])
def test_a_file_of_prometheus_gives_targets_with_its_labels(tmp_path: Path, name: str) -> None:
    labels = {
        "__scheme__": "https", "__metrics_path__": "/m", "__param_module": "a b", "__meta_x": "dropped",
        "namespace": "llm", "zone": "b",
    }  # fmt: skip
    write(tmp_path / name, [{"targets": ["a:1", "[::1]:2"], "labels": labels}, {"targets": ["b:1"]}])
    discovery = FileSdDiscovery(group_of(tmp_path / name, labels=(("zone", "a"), ("cluster", "a"))))
    discovery.refresh(0.0)
    first, second, third = discovery.targets()
    assert (first.name, first.url) == ("a:1", "https://a:1/m?module=a+b")
    assert (first.namespace, first.labels) == ("llm", (("cluster", "a"), ("zone", "b")))
    assert second.url == "https://[::1]:2/m?module=a+b"
    assert (third.url, third.labels) == ("http://b:1/metrics", (("cluster", "a"), ("zone", "a")))
    assert (discovery.failures, discovery.last_error) == ({}, "")


def test_files_are_looked_at_again_only_when_it_is_time(tmp_path: Path) -> None:
    discovery = FileSdDiscovery(group_of(tmp_path / "*.json"))
    discovery.refresh(0.0)
    assert names(discovery) == []
    write(tmp_path / "a.json", [{"targets": ["a:1"]}])
    discovery.refresh(9.9)
    assert names(discovery) == []
    discovery.refresh(10.0)
    assert names(discovery) == ["a:1"]


def test_a_removed_file_loses_its_targets_and_a_bad_one_keeps_them(tmp_path: Path) -> None:
    write(tmp_path / "a.json", [{"targets": ["a:1"]}])
    write(tmp_path / "b.json", [{"targets": ["b:1"]}])
    discovery = FileSdDiscovery(group_of(tmp_path / "*.json"))
    discovery.refresh(0.0)
    assert names(discovery) == ["a:1", "b:1"]
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").write_text('[{"targets": ["c')
    discovery.refresh(10.0)
    assert names(discovery) == ["b:1"]
    assert discovery.failures == {"invalid": 1}
    assert discovery.last_error.startswith(f"{tmp_path}/b.json: ")
    write(tmp_path / "b.json", [{"targets": ["c:1"]}])
    discovery.refresh(20.0)
    assert (names(discovery), discovery.failures, discovery.last_error) == (["c:1"], {"invalid": 1}, "")


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path / "a.json", [{"targets": ["a:1"]}])
    before = (tmp_path / "a.json").stat()
    discovery = FileSdDiscovery(group_of(tmp_path / "a.json"))
    discovery.refresh(0.0)
    (tmp_path / "a.json").write_text('[{"targets": ["b:1"]}]')
    os.utime(tmp_path / "a.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    discovery.refresh(10.0)
    assert names(discovery) == ["a:1"]
    os.utime(tmp_path / "a.json", ns=(1, 1))
    discovery.refresh(20.0)
    assert names(discovery) == ["b:1"]


CREDENTIALS = "found credentials in an address, expected them in basic_auth or bearer_token_file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected a list of groups such as [{targets: [host:port], labels: {}}]"),
        ("[1]", "[0]: expected a mapping with targets and labels, and nothing else"),
        ('[{"target": ["a:1"]}]', "[0]: expected a mapping with targets and labels, and nothing else"),
        ('[{"targets": "a:1"}]', "[0].targets: expected a list of addresses as text"),
        ('[{"targets": [1]}]', "[0].targets: expected a list of addresses as text"),
        (
            '[{"targets": ["a"]}]',
            f'[0].targets[0]: found "a", expected {EXPECTED}',
        ),
        (
            '[{"targets": ["u:hunter2@a:1"]}]',
            f"[0].targets[0]: {CREDENTIALS}",
        ),
        (
            '[{"targets": [], "labels": {"a": 1}}]',
            "[0].labels: expected a mapping of names to text; quote numbers and booleans",
        ),
        (
            '[{"targets": ["a:1"], "labels": {"tier": "x"}}]',
            "[0].labels.tier: this label is set by the exporter itself; choose another name",
        ),
        (
            '[{"targets": ["a:1"], "labels": {"__scheme__": "ftp"}}]',
            '[0].labels.__scheme__: found "ftp", expected http or https',
        ),
        (
            '[{"targets": ["a:1"], "labels": {"__metrics_path__": "m"}}]',
            '[0].labels.__metrics_path__: found "m", expected a path such as /metrics',
        ),
    ],
)
def test_a_bad_file_is_told_with_place_and_expectation(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.json").write_text(text)
    discovery = FileSdDiscovery(group_of(tmp_path / "t.json"))
    discovery.refresh(0.0)
    assert (discovery.failures, discovery.last_error) == ({"invalid": 1}, f"{tmp_path}/t.json: {message}")
    assert names(discovery) == []


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "t.json").open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(DiscoveryError, match="larger than 16777216 bytes; split it"):
        list(read_targets(group_of("*.json"), str(tmp_path / "t.json")))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(["a:1", "__scheme__", "http", "/m"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["targets", "labels"]) | st.text(), inner, max_size=3)
    ),
)
GROUPS = st.lists(
    st.fixed_dictionaries({
        "targets": st.lists(st.text(max_size=9) | st.just("a:1"), max_size=3),
        "labels": st.dictionaries(st.text() | st.just("__metrics_path__"), st.text() | st.just("/m")),
    }),
    max_size=3,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(data=st.one_of(VALUES.map(json.dumps), GROUPS.map(json.dumps), VALUES.map(yaml.safe_dump), st.text()))
@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_any_file_gives_targets_or_a_discovery_error(
    tmp_path_factory: pytest.TempPathFactory, ending: str, data: str
) -> None:
    file = tmp_path_factory.getbasetemp() / f"any.{ending}"
    file.write_bytes(data.encode("utf-8", "surrogatepass"))
    try:
        found = list(read_targets(group_of("*.json"), str(file)))
    except DiscoveryError as error:
        message = str(error)
    else:
        assert all(re.match(r"https?://[^\s?#]+$|https?://[^\s?#]+\?\S+$", target.url) for target in found)
        return
    assert message


def dns_group(lookup_type: str = "A", name: str = "localhost", port: int | None = 8000) -> TargetGroup:
    return TargetGroup(engine="sglang", dns=DnsDiscovery(name=name, type=lookup_type, port=port))


def test_a_name_gives_one_target_per_address() -> None:
    discovery = NameDiscovery(dns_group())
    discovery.refresh(0.0)
    assert settled(lambda: names(discovery) == ["127.0.0.1:8000"])
    (target,) = discovery.targets()
    assert (target.url, target.engine) == ("http://127.0.0.1:8000/metrics", "sglang")


def test_an_ipv6_address_stands_in_brackets() -> None:
    found = resolve_addresses(DnsDiscovery(name="::1", type="AAAA", port=1))
    assert [address.name for address in found] == ["[::1]:1"]


@pytest.mark.parametrize("name", ["name.invalid", "a..b", "x" * 80])
def test_a_name_without_addresses_is_a_discovery_error(name: str) -> None:
    with pytest.raises(DiscoveryError, match=r"^the A records cannot be looked up: "):
        resolve_addresses(DnsDiscovery(name=name, type="A", port=1))


def test_a_failing_name_keeps_the_last_known_targets_and_is_counted() -> None:
    answers: list[Sequence[Address] | None] = [[Address("b", 1), Address("a", 1), Address("a", 1)], None, []]

    def lookup(_: DnsDiscovery) -> Sequence[Address]:
        answer = answers.pop(0)
        if answer is None:
            raise DiscoveryError("no answer today", "lookup")
        return answer

    discovery = NameDiscovery(dns_group(), lookup)
    discovery.refresh(0.0)
    assert names(discovery) == ["a:1", "b:1"]
    discovery.refresh(30.0)
    assert names(discovery) == ["a:1", "b:1"]
    assert (discovery.failures, discovery.last_error) == ({"lookup": 1}, "no answer today")
    discovery.refresh(60.0)
    assert (names(discovery), discovery.failures, discovery.last_error) == ([], {"lookup": 1}, "")


def test_a_hanging_look_up_delays_nobody_and_is_never_started_twice() -> None:
    goes_on, calls = threading.Event(), []

    def lookup(_: DnsDiscovery) -> Sequence[Address]:
        calls.append(1)
        goes_on.wait(10)
        return [Address("late", 1)]

    discovery = NameDiscovery(dns_group(), lookup)
    began = time.monotonic()
    for now in (0.0, 4.9, 5.0, 6.0, 34.0, 35.0):
        discovery.refresh(now)
    assert time.monotonic() - began < 5.0
    assert len(calls) == 1
    assert (discovery.failures, discovery.last_error) == ({"timeout": 2}, "no answer within 5s")
    goes_on.set()
    assert settled(lambda: names(discovery) == ["late:1"])


def test_a_name_that_hung_gets_no_grace_until_it_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, seconds = threading.Event(), [0.3, 20.0]

    def lookup(_: DnsDiscovery) -> Sequence[Address]:
        slow.wait(seconds.pop(0))
        return [Address("a", 1)]

    discovery = NameDiscovery(dns_group(), lookup)
    discovery.refresh(0.0)
    assert settled(lambda: names(discovery) == ["a:1"])
    monkeypatch.setattr(polled, "GRACE_SECONDS", 20.0)
    began = time.monotonic()
    discovery.refresh(30.0)
    assert time.monotonic() - began < 10.0
    slow.set()


class NameServer:
    """A real name server on this machine that answers every question with the given SRV records."""

    def __init__(self, *records: str) -> None:
        self._records = records
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.resolver = dns.resolver.Resolver(configure=False)
        self.resolver.nameservers = ["127.0.0.1"]
        self.resolver.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> dns.resolver.Resolver:
        self._thread.start()
        return self.resolver

    def __exit__(self, *_: object) -> None:
        self._socket.sendto(b"stop", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while (received := self._socket.recvfrom(4096))[0] != b"stop":
            question = dns.message.from_wire(received[0])
            answer = dns.message.make_response(question)
            name = question.question[0].name
            answer.answer = (
                [dns.rrset.from_text(name, 60, "IN", "SRV", *self._records)] if self._records else []
            )
            self._socket.sendto(answer.to_wire(), received[1])


SRV = DnsDiscovery(name="_metrics._tcp.llm.test.", type="SRV")


def test_srv_records_name_hosts_and_ports() -> None:
    with NameServer("0 0 8000 a.llm.test.", "0 0 8001 b.llm.test.", "0 0 1 .") as resolver:
        found = sorted(address.name for address in resolve_srv(SRV, resolver))
    assert found == ["a.llm.test:8000", "b.llm.test:8001"]


def test_no_srv_record_is_a_discovery_error() -> None:
    with NameServer() as resolver, pytest.raises(DiscoveryError, match="SRV records cannot be looked up"):
        resolve_srv(SRV, resolver)


def test_a_name_that_cannot_be_asked_for_is_a_discovery_error() -> None:
    with pytest.raises(DiscoveryError, match="SRV records cannot be looked up"):
        resolve_srv(DnsDiscovery(name="x" * 80, type="SRV"), dns.resolver.Resolver(configure=False))
