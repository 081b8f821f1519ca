"""Targets behind a DNS name: A and AAAA by the system's resolver, SRV by dnspython."""

import socket
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import dns.exception
import dns.name
import dns.resolver

from kvcache_exporter.config import Address, DnsDiscovery, TargetGroup
from kvcache_exporter.targets.base import DiscoveryError, Target, make_target
from kvcache_exporter.targets.polled import PolledDiscovery

SRV_SECONDS = 5.0
Lookup = Callable[[DnsDiscovery], Sequence[Address]]
_FAMILIES = {"A": socket.AF_INET, "AAAA": socket.AF_INET6}


class NameDiscovery(PolledDiscovery):
    """One target per address or SRV record; a name without records is a failure: names vanish by mistake."""

    key: ClassVar[str] = "dns"

    def __init__(self, group: TargetGroup, lookup: Lookup | None = None) -> None:
        if group.dns is None:
            raise ValueError("the group has no dns")
        super().__init__(f"dns {group.dns.name}", group.dns.refresh)
        self._group = group
        self._dns = group.dns
        self._lookup = lookup or (resolve_srv if group.dns.type == "SRV" else resolve_addresses)

    def look(self) -> Sequence[Target]:
        addresses = sorted(set(self._lookup(self._dns)), key=lambda address: (address.host, address.port))
        return [make_target(self._group, address) for address in addresses]


def resolve_addresses(dns_name: DnsDiscovery) -> Sequence[Address]:
    try:
        found = socket.getaddrinfo(dns_name.name, dns_name.port, _FAMILIES[dns_name.type], socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DiscoveryError(f"the {dns_name.type} records cannot be looked up: {error}") from None
    return [Address(_host(entry[4]), dns_name.port or 0) for entry in found]


def _host(address: tuple[Any, ...]) -> str:
    host = str(address[0])
    return f"[{host}]" if ":" in host else host


def resolve_srv(dns_name: DnsDiscovery, resolver: dns.resolver.Resolver | None = None) -> Sequence[Address]:
    try:
        resolver = resolver or dns.resolver.Resolver()
        answer = resolver.resolve(dns_name.name, "SRV", lifetime=SRV_SECONDS, search=True)
    except dns.exception.DNSException as error:
        raise DiscoveryError(f"the SRV records cannot be looked up: {error}") from None
    # A single record for the root says that the service is not offered here (RFC 2782).
    return [
        Address(record.target.to_text(omit_final_dot=True), record.port)
        for record in answer
        if record.target != dns.name.root
    ]
