"""Who to scrape. To add a way of finding targets, write one module with a `Discovery` and add it to DISCOVERIES."""

from collections.abc import Iterable, Sequence

from kvcache_exporter.config import TargetGroup
from kvcache_exporter.targets.base import Discovery, DiscoveryError, Target, log
from kvcache_exporter.targets.dns import NameDiscovery
from kvcache_exporter.targets.file import FileSdDiscovery
from kvcache_exporter.targets.static import StaticDiscovery

DISCOVERIES: tuple[type[Discovery], ...] = (StaticDiscovery, FileSdDiscovery, NameDiscovery)


class Targets:
    """The targets of all groups, each name once."""

    def __init__(self, groups: Iterable[TargetGroup]) -> None:
        self._discoveries = tuple(discovery_of(group) for group in groups)
        self._reported: frozenset[str] = frozenset()

    @property
    def failures(self) -> int:
        """Look-ups of all groups that went wrong so far."""
        return sum(discovery.failures for discovery in self._discoveries)

    @property
    def errors(self) -> tuple[str, ...]:
        """What is wrong with groups now."""
        return tuple(discovery.last_error for discovery in self._discoveries if discovery.last_error)

    def refresh(self, now: float) -> None:
        for discovery in self._discoveries:
            discovery.refresh(now)

    def targets(self) -> Sequence[Target]:
        """Of several targets with one name the first wins."""
        by_name: dict[str, Target] = {}
        twice: set[str] = set()
        for discovery in self._discoveries:
            for target in discovery.targets():
                if by_name.setdefault(target.name, target) != target:
                    twice.add(target.name)
        self._report(frozenset(twice))
        return tuple(by_name.values())

    def _report(self, twice: frozenset[str]) -> None:
        for name in sorted(twice - self._reported):
            log.warning(
                "target %s is found twice with different settings; the first wins, remove the other", name
            )
        self._reported = twice


def discovery_of(group: TargetGroup) -> Discovery:
    return next(kind(group) for kind in DISCOVERIES if getattr(group, kind.key))


__all__ = ["DISCOVERIES", "Discovery", "DiscoveryError", "Target", "Targets", "discovery_of"]
