"""Anthropic Messages usage: `input_tokens` leaves out what was read from and written to the cache."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from kvcache_exporter.catalogue import MISS_REASONS
from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, row_of
from kvcache_exporter.requests.formats.tiers import tier
from kvcache_exporter.requests.formats.usual import Counts, of_two_ttls
from kvcache_exporter.requests.formats.values import Tokens, label


class CacheCreation(msgspec.Struct, gc=False):
    """`usage.cache_creation`."""

    ephemeral_5m_input_tokens: Tokens = None
    ephemeral_1h_input_tokens: Tokens = None


class Iteration(msgspec.Struct, gc=False):
    """An element of `usage.iterations` (beta)."""

    type: Any = None


Iterations = (
    list[Iteration | list[Any] | str | float | bool | None] | dict[str, Any] | str | float | bool | None
)


class MessagesUsage(msgspec.Struct, gc=False):
    """`usage`."""

    input_tokens: Tokens = None
    cache_creation_input_tokens: Tokens = None
    cache_read_input_tokens: Tokens = None
    cache_creation: CacheCreation | list[Any] | str | float | bool | None = None
    output_tokens: Tokens = None
    input_tokens_details: Any = None
    """Never Anthropic's: with details, `input_tokens` is the whole prompt."""
    prompt_tokens_details: Any = None
    service_tier: Any = None
    speed: Any = None
    inference_geo: Any = None
    iterations: Iterations = None


class MissReason(msgspec.Struct, gc=False):
    """`diagnostics.cache_miss_reason`: where the prompt diverged from the previous request's."""

    type: Any = None
    cache_missed_input_tokens: Tokens = None


class Diagnostics(msgspec.Struct, gc=False):
    """`diagnostics` of a message (beta header cache-diagnosis-2026-04-07), null where nothing differed."""

    cache_miss_reason: MissReason | list[Any] | str | float | bool | None = None


class MessagesRow(Envelope, gc=False):
    """One line."""

    diagnostics: Diagnostics | list[Any] | str | float | bool | None = None


def diagnosis(diagnostics: object) -> tuple[str, int] | None:
    """The reason and the tokens missed because of it; None while the comparison is unfinished."""
    reason = diagnostics.cache_miss_reason if isinstance(diagnostics, Diagnostics) else None
    if not isinstance(reason, MissReason) or not isinstance(reason.type, str):
        return None
    name = reason.type if reason.type in MISS_REASONS else "other"
    return name, reason.cache_missed_input_tokens or 0


_KEPT = frozenset({int, bool, CacheCreation})
"""Types of the usage object's fields that are kept as they are."""
_MOST_ITERATIONS = 64


def take_over(usage: MessagesUsage, into: MessagesUsage) -> None:
    """Of several events of one message the last value of each field counts that is not null.

    What goes `into` the other are numbers and short words only, since that may wait in the state file.
    """
    for name, value in zip(MessagesUsage.__struct_fields__, astuple(usage), strict=True):
        if value is None:
            continue
        if type(value) in _KEPT:
            setattr(into, name, value)
        elif type(value) is str:
            setattr(into, name, label(value))
        elif type(value) is list:
            kinds = [one.type for one in value[:_MOST_ITERATIONS] if isinstance(one, Iteration)]
            setattr(into, name, list(map(Iteration, map(label, kinds))))


def message_counts(usage: MessagesUsage) -> Counts:
    """The counts of a whole message; cache fields that are null or absent are 0, as Anthropic documents."""
    fresh, output = usage.input_tokens, usage.output_tokens
    if usage.input_tokens_details is not None or usage.prompt_tokens_details is not None:
        return None, None, None, output, ()
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens
    if written is None and isinstance(usage.cache_creation, CacheCreation):
        written = (usage.cache_creation.ephemeral_5m_input_tokens or 0) + (
            usage.cache_creation.ephemeral_1h_input_tokens or 0
        )
    written = written or 0
    if fresh is None and not read and not written:
        return None, None, None, output, ()
    prompt = (fresh or 0) + read + written
    if not prompt:
        return 0, None, None, output, ()
    return prompt, read, written, output, split_by_ttl(usage.cache_creation, written) if written else ()


def split_by_ttl(split: object, written: int) -> tuple[tuple[str, int], ...]:
    """Written tokens by TTL; those that the log does not split have the default of 5 minutes."""
    hour = min(written, (split.ephemeral_1h_input_tokens or 0) if isinstance(split, CacheCreation) else 0)
    return of_two_ttls(written, hour)


def message_tiers(rows: Sequence[Any]) -> Sequence[str]:
    """Service tier, speed and region, and other work for the request that is billed separately.

    Tokens of a compaction or an advisor are in none of the counts (LiteLLM adds them to its costs).
    """
    usages = [row.usage for row in rows]
    found = [(u.service_tier, u.speed, u.inference_geo, u.iterations) for u in usages]
    if found[0][3] is None and found.count(found[0]) == len(found):
        return [tier(*found[0])] * len(found)
    return [tier(*words, *map(_apart, each if isinstance(each, list) else ())) for *words, each in found]


def _apart(iteration: object) -> object:
    kind = iteration.type if isinstance(iteration, Iteration) else None
    return None if kind == "message" else kind


def _looks(sample: Mapping[str, Any]) -> bool:
    usage = sample.get("usage")
    return isinstance(usage, dict) and (
        "cache_read_input_tokens" in usage
        or "cache_creation_input_tokens" in usage
        or (sample.get("type") == "message" and "input_tokens" in usage)
    ) and "prompt_tokens" not in usage  # fmt: skip


ANTHROPIC_MESSAGES = EnvelopeFormat(
    name="anthropic_messages",
    row=row_of(MessagesUsage, MessagesRow),
    usage=MessagesUsage,
    counts=message_counts,
    looks=_looks,
    provider="anthropic",
    tiers=message_tiers,
    diagnosis=lambda row: None if row.diagnostics is None else diagnosis(row.diagnostics),
)
