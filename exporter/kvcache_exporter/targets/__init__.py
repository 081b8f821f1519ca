"""Target discovery; to add a kind, write a module with a `Discovery` and list it in DISCOVERIES."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from kvcache_exporter.config import TargetGroup
from kvcache_exporter.targets.base import Discovery, DiscoveryError, Target, log
from kvcache_exporter.targets.dns import NameDiscovery
from kvcache_exporter.targets.file import FileSdDiscovery
from kvcache_exporter.targets.kubernetes import KubernetesDiscovery
from kvcache_exporter.targets.static import StaticDiscovery

DISCOVERIES: tuple[type[Discovery], ...] = (
    StaticDiscovery,
    FileSdDiscovery,
    NameDiscovery,
    KubernetesDiscovery,
)


class Targets:
    """The targets of all groups, each name once; not thread-safe."""

    def __init__(
        self, groups: Iterable[TargetGroup] = (), changed: Callable[[], None] = lambda: None
    ) -> None:
        """`changed` is called, from any thread, when targets changed without a `refresh`."""
        self._changed = changed
        self._running: dict[TargetGroup, Discovery] = {}
        self._failures_before: Counter[str] = Counter()
        """Failures of closed discoveries, so that the counter never decreases."""
        self._duplicates: frozenset[str] = frozenset()
        self.use(groups)

    def use(self, groups: Iterable[TargetGroup]) -> None:
        """Find the targets of exactly these groups; groups that stay keep their known targets."""
        groups = tuple(groups)
        for group in self._running.keys() - set(groups):
            closed = self._running.pop(group)
            closed.close()
            self._failures_before.update(closed.failures)
        for discovery in self._running.values():
            discovery.expire()
        self._running = {group: self._running.get(group) or self._opened(group) for group in groups}

    def close(self) -> None:
        self.use(())

    @property
    def failures(self) -> Counter[str]:
        """Failed look-ups of all groups, by reason."""
        return sum((discovery.failures for discovery in self._running.values()), self._failures_before)

    @property
    def errors(self) -> tuple[str, ...]:
        """Current problems of groups and between them."""
        failed = [problem for discovery in self._running.values() for problem in discovery.problems]
        return (*failed, *(_twice(name) for name in sorted(self._duplicates)))

    def refresh(self, now: float) -> None:
        """Refresh the groups that are due, concurrently."""
        for discovery in self._running.values():
            discovery.begin(now)
        for discovery in self._running.values():
            discovery.settle()

    def targets(self) -> Sequence[Target]:
        """All targets; of several with one name the first wins, and the others are reported."""
        by_name: dict[str, Target] = {}
        twice: set[str] = set()
        for discovery in self._running.values():
            for target in discovery.targets():
                if by_name.setdefault(target.name, target) is not target:
                    twice.add(target.name)
        self._report(frozenset(twice))
        return tuple(by_name.values())

    def _opened(self, group: TargetGroup) -> Discovery:
        discovery = discovery_of(group)
        discovery.changed = self._changed
        return discovery

    def _report(self, twice: frozenset[str]) -> None:
        for name in sorted(twice - self._duplicates):
            log.warning("discovery: %s", _twice(name))
        self._duplicates = twice


def discovery_of(group: TargetGroup) -> Discovery:
    return next(kind(group) for kind in DISCOVERIES if getattr(group, kind.key))


def _twice(name: str) -> str:
    return f"target {name} is found more than once; the first wins, remove the others"


__all__ = ["DISCOVERIES", "Discovery", "DiscoveryError", "Target", "Targets", "discovery_of"]
