"""Who counts which messages of a partition, and where a new owner goes on.

A batch counts only once it is claimed: its exporter commits the offset behind it to the group, and in the
commit's metadata the last claim of every exporter that had the partition. The group refuses claims of members
that lost their partitions, so of two exporters only one can claim a message; and after a crash an exporter
finds out from the metadata, whoever came after it, whether its last batch was claimed.
"""

from dataclasses import dataclass
from typing import NamedTuple

_MARK = "kvcache1"
_MOST = 64
"""Exporters remembered per partition: brokers allow 4096 bytes, and each takes 28 at most."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Of each exporter the offset behind its last claim, the newest claim first."""

    ends: tuple[tuple[str, int], ...] = ()

    @classmethod
    def decode(cls, metadata: str | None) -> "Claims":
        """No claims where the metadata is not ours: tools that reset offsets leave it empty."""
        mark, *words = (metadata or "").split(" ")
        pairs = [word.partition(":") for word in words]
        if mark != _MARK or not all(owner and end.isascii() and end.isdigit() for owner, _, end in pairs):
            return cls()
        return cls(tuple((owner, int(end)) for owner, _, end in pairs))

    def encode(self) -> str:
        return " ".join([_MARK, *(f"{owner}:{end}" for owner, end in self.ends)])

    def of(self, owner: str) -> int | None:
        return dict(self.ends).get(owner)

    @property
    def last_owner(self) -> str:
        return self.ends[0][0] if self.ends else ""

    def add(self, owner: str, end: int) -> "Claims":
        others = tuple(claim for claim in self.ends if claim[0] != owner)
        return Claims(((owner, end), *others)[:_MOST])


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a partition when it becomes ours."""

    own: int | None
    """Next offset according to this exporter's state file."""
    committed: int | None
    """The group's, with its claims."""
    claims: Claims
    low: int
    """The log holds the offsets from here..."""
    high: int
    """...to before this."""
    fresh: int
    """Where to begin if nobody was here before."""


class Resume(NamedTuple):
    """Where a partition is read on."""

    next: int
    uncounted: int = 0
    """Messages that this exporter claimed and cannot count any more: its state file was set back."""
    expired: int = 0
    """Messages that were deleted before anybody read them."""


def resume(at: Standing, owner: str) -> Resume:
    """Where `owner`, whose own batches are settled, goes on."""
    own, committed = at.own, at.committed
    if own is None and committed is None:
        return Resume(at.fresh)
    if committed is None or (own is not None and at.claims.last_owner == owner):
        # Nobody else was here since, so what the state file says is right, also if the group was reset.
        begin, uncounted = own or 0, 0
    else:
        begin = max(committed, own or 0)
        uncounted = 0 if own is None else max(0, (at.claims.of(owner) or 0) - own)
    if begin > at.high:
        # A group forgets the offsets of a deleted topic; then this is a new one. Else the log lost its end.
        return Resume(at.low if committed is None else at.high, uncounted)
    return Resume(max(begin, at.low), uncounted, max(0, at.low - begin))
