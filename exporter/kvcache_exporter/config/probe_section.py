"""The section of the configuration for `/probe`: which targets it may scrape, and how."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated

from yaml.nodes import Node

from kvcache_exporter.config import kinds
from kvcache_exporter.config.document import Document
from kvcache_exporter.config.section import Problems, Section
from kvcache_exporter.config.target_sections import Access

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PATTERN = re.compile(r"[A-Za-z0-9_*](?:[\w.*-]*[\w*])?\.?", re.ASCII)
_ENTRY = "a host or network and its port, such as *.llm.svc:8000, 10.0.0.0/8:8000 or [fd00::]/8:8000"
_NETWORK = "a network or an address, such as 10.0.0.0/8, 10.1.2.3 or fd00::/8"


@dataclass(frozen=True, slots=True)
class AllowEntry:
    """Hosts that may be probed on one port: a network, or names that match a pattern."""

    text: str
    port: int
    network: Network | None = None
    pattern: str = ""
    """Lower case, without a trailing dot; `*` matches anything within one part of the name."""

    def fits_name(self, name: str) -> bool:
        """`name` is in lower case, without a trailing dot."""
        parts = (re.escape(part) for part in self.pattern.split("*"))
        return self.network is None and re.fullmatch("[^.]*".join(parts), name) is not None


def parse_allow_entry(text: str) -> AllowEntry | None:
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[1-9]\d{0,4}", port, re.ASCII) or int(port) > 65535:
        return None
    if host.startswith("["):
        network = parse_network(re.sub(r"^\[([^\]]*)\]", r"\1", host)) if "]" in host else None
        return AllowEntry(text, int(port), network) if network else None
    if ":" not in host and (network := parse_network(host)):
        return AllowEntry(text, int(port), network)
    if not _PATTERN.fullmatch(host):
        return None
    return AllowEntry(text, int(port), pattern=host.lower().rstrip("."))


def parse_network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class _AllowText:
    """An entry of `allow`; shown as it was written."""

    label: str = "allowed host"

    def read(self, document: Document, node: Node, path: str) -> AllowEntry:
        entry = parse_allow_entry(document.scalar(node, path, _ENTRY))
        if entry is None:
            raise document.unexpected(node, path, _ENTRY)
        return entry

    def show(self, value: AllowEntry) -> str:
        return value.text


_NETWORK_KIND = kinds.Scalar("network", _NETWORK, parse_network, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeModule(Access):
    name: Annotated[str, kinds.NAME]
    allow: Annotated[tuple[Annotated[AllowEntry, _AllowText()], ...], kinds.NonEmpty()]
    networks: Annotated[tuple[Annotated[Network, _NETWORK_KIND], ...], kinds.NonEmpty()] = ()
    engine: Annotated[str, kinds.Choice("engine")] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeConfig(Section):
    modules: Annotated[tuple[ProbeModule, ...], kinds.Unique("name")]
    timeout_offset: Annotated[float, kinds.duration(0.0, 60.0)] = 0.5
    concurrency: Annotated[int, kinds.integer(1, 24)] = 8

    def problems(self) -> Problems:
        if not self.modules:
            yield "modules", "found an empty list, expected at least one entry"
