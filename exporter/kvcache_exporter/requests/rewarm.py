"""Re-warming seen from a usage log alone: an estimate of how often a group lost the prefix it shares."""

from collections.abc import Iterable

import msgspec

from kvcache_exporter.model import RequestRecord

ESTABLISHED = 20
"""Requests in a row with a cached prefix before its shortest counts as the group's floor."""


class Floor(msgspec.Struct):
    """The shortest cached prefix of a group's latest requests in a row.

    A request that is longer than the floor and finds less than half of it cached lost the shared prefix: one
    event, after which the floor must establish itself anew, so that requests that miss together count once.
    Requests of another kind in the same group look the same, and a loss before the floor stands is not seen;
    the exact count is that of KV events.
    """

    streak: int = 0
    low: int = 0
    events: int = 0

    def observe(self, records: Iterable[RequestRecord]) -> None:
        """Records in the order of the log."""
        for record in records:
            if record.prompt_tokens is not None and record.cached_tokens is not None:
                self._observe(record.prompt_tokens, record.cached_tokens, record.granule)

    def _observe(self, prompt: int, cached: int, granule: int) -> None:
        if cached == 0 and self.streak and prompt < self.low + granule:
            return  # too short to hold the prefix: it says nothing of it
        # Half, since the shortest of a few prefixes is only near the one that all share.
        lost = self.streak >= ESTABLISHED and cached < self.low / 2
        self.events += lost
        if lost or cached == 0:
            self.streak = self.low = 0
            return
        self.low = min(self.low, cached) if self.streak else cached
        self.streak += 1
