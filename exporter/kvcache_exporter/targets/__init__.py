"""Who to scrape; a new way of finding targets is a module with a `Discovery` and a line in DISCOVERIES."""

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
        self._duplicates: frozenset[str] = frozenset()

    @property
    def failures(self) -> int:
        """Look-ups of all groups that went wrong so far."""
        return sum(discovery.failures for discovery in self._discoveries)

    @property
    def errors(self) -> tuple[str, ...]:
        """What is wrong now, with groups and between them."""
        failed = [discovery.last_error for discovery in self._discoveries if discovery.last_error]
        return (*failed, *(_twice(name) for name in sorted(self._duplicates)))

    def refresh(self, now: float) -> None:
        for discovery in self._discoveries:
            discovery.refresh(now)

    def targets(self) -> Sequence[Target]:
        """Of several targets with one name the first wins; the others are reported."""
        by_name: dict[str, Target] = {}
        twice: set[str] = set()
        for discovery in self._discoveries:
            for target in discovery.targets():
                if by_name.setdefault(target.name, target) is not target:
                    twice.add(target.name)
        self._report(frozenset(twice))
        return tuple(by_name.values())

    def _report(self, twice: frozenset[str]) -> None:
        for name in sorted(twice - self._duplicates):
            log.warning("discovery: %s", _twice(name))
        self._duplicates = twice


def discovery_of(group: TargetGroup) -> Discovery:
    return next(kind(group) for kind in DISCOVERIES if getattr(group, kind.key))


def _twice(name: str) -> str:
    return f"target {name} is found more than once; the first wins, remove the others"


__all__ = ["DISCOVERIES", "Discovery", "DiscoveryError", "Target", "Targets", "discovery_of"]
