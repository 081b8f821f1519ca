"""What a target is, and what finds targets."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from kvcache_exporter.config import Address, HttpSettings, TargetGroup
from kvcache_exporter.errors import KVCacheError

log = logging.getLogger(__name__)


class DiscoveryError(KVCacheError):
    """Targets could not be looked up; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Target:
    """One page to scrape."""

    name: str
    """The label `target`: host:port."""
    url: str
    engine: str
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """The operator's own labels, by name."""
    request_metrics: bool = True
    """Whether to take what the plugin inside the engine counted."""
    http: HttpSettings = field(default_factory=HttpSettings)
    """Shared by the targets of a group."""


class Discovery(Protocol):
    """Finds the targets of one group."""

    key: ClassVar[str]
    """The key of the group that asks for it."""
    failures: int
    """Look-ups that went wrong."""
    last_error: str
    """What went wrong in the last look-up, "" if nothing."""

    def __init__(self, group: TargetGroup) -> None: ...

    def targets(self) -> Sequence[Target]:
        """Those known now; returns at once."""
        ...

    def refresh(self, now: float) -> None:
        """Look again if `now` (seconds) says it is time; returns soon whatever the network does."""
        ...


def make_target(group: TargetGroup, address: Address, labels: tuple[tuple[str, str], ...] = ()) -> Target:
    return Target(
        name=address.name,
        url=address.url(group.url_scheme, group.path),
        engine=group.engine,
        request_metrics=group.request_metrics,
        labels=tuple(sorted({**dict(group.labels), **dict(labels)}.items())),
        http=group.http,
    )
