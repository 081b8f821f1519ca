"""Targets behind a DNS name."""

import socket
from collections.abc import Callable, Sequence
from typing import ClassVar

from kvcache_exporter.config import Address, DnsDiscovery, TargetGroup
from kvcache_exporter.lookups import bracketed
from kvcache_exporter.targets.base import DiscoveryError, Target, make_target
from kvcache_exporter.targets.polled import PolledDiscovery

Lookup = Callable[[DnsDiscovery], Sequence[Address]]
_FAMILIES = {"A": socket.AF_INET, "AAAA": socket.AF_INET6}


class NameDiscovery(PolledDiscovery):
    """One target per address or SRV record; a name without records is a failure, as it may be a mistake."""

    key: ClassVar[str] = "dns"

    def __init__(self, group: TargetGroup, lookup: Lookup | None = None) -> None:
        if group.dns is None:
            raise ValueError("the group has no dns")
        super().__init__(group, f"dns {group.dns.name}", group.dns.refresh)
        self._dns = group.dns
        self._lookup = lookup or _lookup_for(group.dns)

    def look(self) -> Sequence[Target]:
        addresses = sorted(set(self._lookup(self._dns)), key=lambda address: (address.host, address.port))
        return [make_target(self._group, address) for address in addresses]


def resolve_addresses(dns_name: DnsDiscovery) -> Sequence[Address]:
    try:
        found = socket.getaddrinfo(dns_name.name, dns_name.port, _FAMILIES[dns_name.type], socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DiscoveryError(f"the {dns_name.type} records cannot be looked up: {error}", "lookup") from None
    return [Address(bracketed(str(entry[4][0])), dns_name.port or 0) for entry in found]


def _lookup_for(dns_name: DnsDiscovery) -> Lookup:
    if dns_name.type != "SRV":
        return resolve_addresses
    # A late import: dnspython loads an HTTP client for DNS over HTTPS if one is installed.
    from kvcache_exporter.targets.srv import resolve_srv  # noqa: PLC0415

    return resolve_srv
