"""SRV records by dnspython, since the system's resolver only looks up addresses."""

from collections.abc import Sequence

import dns.exception
import dns.name
import dns.resolver

from kvcache_exporter.config import Address, DnsDiscovery
from kvcache_exporter.targets.base import DiscoveryError

SRV_SECONDS = 5.0


def resolve_srv(dns_name: DnsDiscovery, resolver: dns.resolver.Resolver | None = None) -> Sequence[Address]:
    try:
        resolver = resolver or dns.resolver.Resolver()
        answer = resolver.resolve(dns_name.name, "SRV", lifetime=SRV_SECONDS, search=True)
    except dns.exception.DNSException as error:
        raise DiscoveryError(f"the SRV records cannot be looked up: {error}", "lookup") from None
    # A single record for the root says that the service is not offered here (RFC 2782).
    return [
        Address(record.target.to_text(omit_final_dot=True), record.port)
        for record in answer
        if record.target != dns.name.root
    ]
