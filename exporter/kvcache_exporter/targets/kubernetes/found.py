"""Turns objects of the cluster into targets."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from kvcache_exporter.config import KubernetesDiscovery, TargetGroup, parse_address
from kvcache_exporter.lookups import bracketed
from kvcache_exporter.targets.base import DiscoveryError, Target, make_target
from kvcache_exporter.targets.kubernetes.annotations import Wishes, read_annotations
from kvcache_exporter.targets.kubernetes.objects import EndpointSlice, Metadata, Pod

USUAL_PORT_NAMES = ("http", "metrics")
"""Port names that are tried in this order if none is configured."""


class Found(NamedTuple):
    """A target, named after its pod unless the pod has several."""

    target: Target
    port: int


class Port(NamedTuple):
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Role:
    """A kind of object that targets are made from."""

    api_group: str
    """"" is the core group."""
    plural: str
    find: Callable[[bytes, TargetGroup, KubernetesDiscovery], Sequence[Found]]
    """Raises DiscoveryError or msgspec.ValidationError if the object cannot be used."""


def find_in_pod(data: bytes, group: TargetGroup, options: KubernetesDiscovery) -> Sequence[Found]:
    pod = msgspec.json.decode(data, type=Pod)
    wishes = _wishes(pod.metadata, group, options)
    if wishes is None or not _takes_requests(pod):
        return ()
    ports = choose_ports(list(_container_ports(pod)), wishes.port)
    return [_found(wishes, pod.metadata.namespace, pod.metadata.name, pod.status.pod_ip, n) for n in ports]


def find_in_slice(data: bytes, group: TargetGroup, options: KubernetesDiscovery) -> Sequence[Found]:
    piece = msgspec.json.decode(data, type=EndpointSlice)
    wishes = _wishes(piece.metadata, group, options)
    endpoints = [
        endpoint
        for endpoint in piece.endpoints or ()
        # An unknown readiness counts as ready, as the API's reference asks.
        if endpoint.conditions.ready is not False
        and not endpoint.conditions.terminating
        and endpoint.addresses
    ]
    if wishes is None or not endpoints:
        return ()
    tcp = [
        Port(port.name or "", port.port) for port in piece.ports or () if port.port and port.protocol == "TCP"
    ]
    found: list[Found] = []
    for endpoint in endpoints:
        # All addresses of an endpoint lead to the same place.
        reference, host = endpoint.target_ref, endpoint.addresses[0]
        owner = reference.name if reference is not None and reference.kind == "Pod" else host
        found += [
            _found(wishes, piece.metadata.namespace, owner, host, n) for n in choose_ports(tcp, wishes.port)
        ]
    return found


ROLES = {
    "pod": Role("", "pods", find_in_pod),
    "endpointslice": Role("discovery.k8s.io", "endpointslices", find_in_slice),
}


def choose_ports(ports: Sequence[Port], wanted: str | None) -> list[int]:
    """The numbers of the wanted port; several containers may have ports of the same name."""
    if wanted is not None and wanted.isdecimal():
        return [int(wanted)]
    names = USUAL_PORT_NAMES if wanted is None else (wanted,)
    for name in names:
        if numbers := sorted({port.number for port in ports if port.name == name}):
            return numbers
    numbers = sorted({port.number for port in ports})
    if wanted is None and len(numbers) == 1:
        return numbers
    missing = f"no TCP port named {' or '.join(names)}"
    has = ", ".join(f"{port.name or '(no name)'} {port.number}" for port in ports[:10]) or "no ports"
    raise DiscoveryError(f"{missing}, it has {has}; set port or the annotation kvcache-exporter.io/port")


def uniquely_named(found: Iterable[Found]) -> list[Target]:
    """Targets with unique names: several ports of a pod are told apart by number."""
    by_name: dict[str, dict[int, Target]] = {}
    for target, port in found:
        ports = by_name.setdefault(target.name, {})
        if port not in ports or _preference(target) < _preference(ports[port]):
            ports[port] = target
    return [
        target if len(ports) == 1 else replace(target, name=f"{name}:{port}")
        for name, ports in sorted(by_name.items())
        for port, target in sorted(ports.items())
    ]


def _preference(target: Target) -> tuple[bool, str]:
    """IPv4 first: both addresses of a dual-stack pod are the same engine."""
    return "//[" in target.url, target.url


def _wishes(metadata: Metadata, group: TargetGroup, options: KubernetesDiscovery) -> Wishes | None:
    return read_annotations(metadata.annotations, group, options.port, opt_in=options.opt_in)


def _takes_requests(pod: Pod) -> bool:
    status = pod.status
    is_ready = any(
        condition.type == "Ready" and condition.status == "True" for condition in status.conditions or ()
    )
    return bool(
        is_ready and status.phase == "Running" and status.pod_ip and pod.metadata.deletion_timestamp is None
    )


def _container_ports(pod: Pod) -> Iterator[Port]:
    sidecars = (c for c in pod.spec.init_containers or () if c.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports or ():
            if port.protocol == "TCP":
                yield Port(port.name, port.container_port)


def _found(wishes: Wishes, namespace: str, owner: str, host: str, port: int) -> Found:
    try:
        address = parse_address(f"{bracketed(host)}:{port}")
    except ValueError as error:
        raise DiscoveryError(str(error)) from None
    target = make_target(wishes.group, address)
    return Found(replace(target, name=f"{namespace}/{owner}", namespace=namespace), port)
