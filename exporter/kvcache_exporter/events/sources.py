"""The running sources of KV events; a new configuration replaces those whose settings changed."""

from collections.abc import Iterable, Mapping

from kvcache_exporter.catalogue import Metric
from kvcache_exporter.events.source import EventOptions, EventSource
from kvcache_exporter.exposition import Chunk


class EventSources:
    """`use` and `close` are for one thread at a time, the other methods for any."""

    def __init__(self) -> None:
        self._running: dict[EventOptions, EventSource] = {}

    def use(self, wanted: Iterable[EventOptions]) -> None:
        """Run these sources and no others; those that already run keep their state."""
        wanted = tuple(wanted)
        before = self._running
        _close(source for options, source in before.items() if options not in wanted)
        self._running = {options: before.get(options) or EventSource(options) for options in wanted}
        for source in self._running.values():
            source.start()

    def close(self) -> None:
        _close(self._running.values())

    @property
    def all(self) -> list[EventSource]:
        return list(self._running.values())

    def blocks(self) -> list[Mapping[Metric, Chunk]]:
        return [source.block for source in self._running.values()]

    def cleared(self, target: str) -> int | None:
        """How often the target's engine emptied its cache since its source started; None without one."""
        return next((source.cleared for source in self._running.values() if source.name == target), None)


def _close(sources: Iterable[EventSource]) -> None:
    stopping = list(sources)
    # Stop all before waiting for any, so that many take no longer than one.
    for source in stopping:
        source.stop()
    for source in stopping:
        source.join()
