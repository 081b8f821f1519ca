"""Estimates from a usage log alone how often a group lost its shared prefix and had to warm it again."""

from collections.abc import Sequence

import msgspec

ESTABLISHED = 20
"""Consecutive hits before the shortest cached prefix counts as the group's floor."""


class Floor(msgspec.Struct):
    """The shortest cached prefix of a group's latest consecutive hits.

    A request that is longer than the floor and finds less than half of it cached lost the shared prefix: one
    event. The floor must then form again, so that requests that miss together count once.
    Requests of another kind in the same group look the same, and a loss before the floor has formed is not
    seen; KV events give the exact count.
    """

    streak: int = 0
    low: int = 0
    events: int = 0

    def observe(self, prompts: Sequence[int], cached: Sequence[int], granule: int) -> None:
        """Tokens of requests in the order of the log."""
        streak, low = self.streak, self.low
        for prompt, hit in zip(prompts, cached, strict=True):
            if streak and hit >= low:  # nearly always
                streak += 1
                continue
            if hit == 0 and streak and prompt < low + granule:
                continue  # too short to contain the prefix
            # Half, since the shortest of a few cached prefixes only approximates the shared one.
            lost = streak >= ESTABLISHED and hit < low / 2
            if lost or hit == 0:
                self.events += lost
                streak = low = 0
                continue
            low = hit
            streak += 1
        self.streak, self.low = streak, low
