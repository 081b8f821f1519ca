"""Decides which exporter counts which messages of a partition, and where a new owner resumes.

A batch counts only once it is claimed: the exporter commits the offset after it to the group, with the last
claim of every exporter that ever owned the partition in the commit's metadata. The group refuses claims of
members that lost their partitions, so only one exporter can claim a message. After a crash, an exporter
learns from the metadata whether its last batch was claimed, whoever owned the partition since.
"""

from dataclasses import dataclass
from typing import NamedTuple

_MARK = "kvcache1"
_MOST = 64
"""Exporters remembered per partition: brokers allow 4096 bytes, and each takes up to 28."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The offset after each exporter's last claim, the newest claim first."""

    ends: tuple[tuple[str, int], ...] = ()

    @classmethod
    def decode(cls, metadata: str | None) -> "Claims":
        """No claims if the metadata is not ours: tools that reset offsets leave it empty."""
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
    """What is known about a partition when it is assigned to this exporter."""

    own: int | None
    """Next offset according to this exporter's state file."""
    committed: int | None
    """The group's committed offset."""
    claims: Claims
    low: int
    """The first offset in the partition's log."""
    high: int
    """The offset after the last one in the log."""
    fresh: int
    """Where to begin if nobody has read the partition before."""


class Resume(NamedTuple):
    """Where reading of a partition resumes."""

    next: int
    uncounted: int = 0
    """Messages that this exporter claimed but has lost, as its state file was set back."""
    expired: int = 0
    """Messages that were deleted before anyone read them."""


def resume(at: Standing, owner: str) -> Resume:
    """Where `owner` resumes, once it is known which of its batches were claimed."""
    own, committed = at.own, at.committed
    if own is None and committed is None:
        return Resume(at.fresh)
    if committed is None or (own is not None and at.claims.last_owner == owner):
        # Nobody else has read since, so the state file is right, even if the group's offsets were reset.
        begin, uncounted = own or 0, 0
    else:
        begin = max(committed, own or 0)
        uncounted = 0 if own is None else max(0, (at.claims.of(owner) or 0) - own)
    if begin > at.high:
        # Without a committed offset this is a new topic with an old name; else the log has lost its end.
        return Resume(at.low if committed is None else at.high, uncounted)
    return Resume(max(begin, at.low), uncounted, max(0, at.low - begin))
