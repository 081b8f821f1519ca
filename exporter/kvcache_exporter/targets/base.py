"""Targets, and the interface of discoveries."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from kvcache_exporter.config import Address, HttpSettings, TargetGroup
from kvcache_exporter.errors import KVCacheError

log = logging.getLogger(__name__)


class DiscoveryError(KVCacheError):
    """Targets could not be looked up; the message says where and why.

    `reason` is a value of the catalogue's DISCOVERY_FAILURE_REASONS.
    """

    def __init__(self, message: str, reason: str = "invalid") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Target:
    """One page to scrape."""

    name: str
    """The label `target`: host:port, or namespace/pod."""
    url: str
    engine: str
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """The operator's own labels, by name."""
    request_metrics: bool = True
    """Whether to export the counts of the plugin inside the engine."""
    ask_version: bool = True
    """Whether to ask the engine's web server for its version."""
    http: HttpSettings = field(default_factory=HttpSettings)
    """Shared by the targets of a group."""


class Discovery(ABC):
    """Finds the targets of one group."""

    key: ClassVar[str]
    """The key in a target group that selects this discovery."""

    def __init__(self, group: TargetGroup) -> None:
        self.failures: Counter[str] = Counter()
        """Failed look-ups, by the catalogue's DISCOVERY_FAILURE_REASONS."""
        self.last_error = ""
        """The problem of the last look-up, "" if it succeeded."""
        self.changed: Callable[[], None] = lambda: None
        """Called, from any thread, when targets change without a `refresh`; set by the owner."""
        self._group = group
        self._where: str = self.key

    @property
    def problems(self) -> tuple[str, ...]:
        """Current problems."""
        return (self.last_error,) if self.last_error else ()

    @abstractmethod
    def targets(self) -> Sequence[Target]:
        """The targets known now; never blocks."""

    def refresh(self, now: float) -> None:
        """Look up again if due at `now` (seconds); returns soon, whatever the network does."""
        self.begin(now)
        self.settle()

    def begin(self, now: float) -> None:  # noqa: B027 - what is configured need not be looked for
        """The first half of `refresh`; never blocks."""

    def settle(self) -> None:  # noqa: B027 - as above
        """The second half: wait a moment after `begin` for look-ups that are usually quick."""

    def expire(self) -> None:  # noqa: B027 - only polled ones look again by themselves
        """Look up again at the next `refresh`, even if it is not due."""

    def close(self) -> None:  # noqa: B027 - only watches hold anything
        """Release threads and connections; discovery ends."""

    def failed(self, reason: str, message: str, before: str) -> None:
        """Count a failure, and log it unless it is the same as the one before."""
        self.failures[reason] += 1
        if message != before:
            log.warning("discovery: %s: %s; keeping the last known targets", self._where, message)


def make_target(group: TargetGroup, address: Address, labels: tuple[tuple[str, str], ...] = ()) -> Target:
    return Target(
        name=address.name,
        url=address.url(group.url_scheme, group.path),
        engine=group.engine,
        request_metrics=group.request_metrics,
        ask_version=group.ask_version,
        labels=tuple(sorted({**dict(group.labels), **dict(labels)}.items())),
        http=group.http,
    )
