"""Targets listed in the configuration."""

from collections.abc import Sequence
from typing import ClassVar

from kvcache_exporter.config import TargetGroup, parse_address
from kvcache_exporter.targets.base import Discovery, Target, make_target


class StaticDiscovery(Discovery):
    """Never changes and never fails: the addresses were validated with the configuration."""

    key: ClassVar[str] = "static"

    def __init__(self, group: TargetGroup) -> None:
        super().__init__(group)
        self._targets = tuple(make_target(group, parse_address(text)) for text in group.static)

    def targets(self) -> Sequence[Target]:
        return self._targets
