"""The usage object of the Chat Completions API, and its variants of providers and engines that copy it.

All of them include cache reads and writes in `prompt_tokens`. They differ in the place of the cached count,
in whether they report writes, and in further fields.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import msgspec

from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, row_of
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.usual import CountColumns, Counts, one_by_one
from kvcache_exporter.requests.formats.values import Tokens

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class ChatDetails(msgspec.Struct, gc=False):
    """`usage.prompt_tokens_details`."""

    written: ClassVar[int | None] = None
    """The field of written tokens, if the provider has one."""
    cached_tokens: Tokens = None


class ChatUsage(msgspec.Struct, gc=False):
    """`usage`."""

    hits: ClassVar[int | None] = None
    """The field of the cached count beside the totals, if the provider has one."""
    no_writes: ClassVar[int | None] = None
    """Written tokens of a reply that has a cached count and reports no writes."""
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    prompt_tokens_details: ChatDetails | list[Any] | str | float | bool | None = None


def chat_usage(*, hits: str = "", writes: str = "", no_writes: int | None = None) -> type[ChatUsage]:
    """The usage object of a provider with these fields: `hits` beside the totals, `writes` in the details."""
    details = _with(ChatDetails, "written", writes) if writes else ChatDetails
    usage = _with(ChatUsage, "hits", hits) if hits else ChatUsage
    field = ("prompt_tokens_details", details | list[Any] | str | float | bool | None, None)
    names = {"no_writes": no_writes}
    made = msgspec.defstruct(usage.__name__, [field], bases=(usage,), namespace=names, gc=False)
    return cast("type[ChatUsage]", made)


def _with(base: type[_Struct], attribute: str, name: str) -> type[_Struct]:
    field = (attribute, Tokens, msgspec.field(default=None, name=name))
    return cast("type[_Struct]", msgspec.defstruct(base.__name__, [field], bases=(base,), gc=False))


def chat_counts(usage: ChatUsage) -> Counts:
    """The counts. If two fields hold the cached count they repeat it, so they are never added."""
    cached, written, details = usage.hits, None, usage.prompt_tokens_details
    if isinstance(details, ChatDetails):
        written = details.written
        if cached is None:
            cached = details.cached_tokens
    if written is None and cached is not None:
        written = usage.no_writes
    return usage.prompt_tokens, cached, written, usage.completion_tokens, ()


_each = one_by_one(chat_counts)


def all_chat_counts(usages: Sequence[ChatUsage]) -> CountColumns:
    """As `chat_counts`, of many; those of a batch nearly always have the same shape."""
    kind = type(usages[0])
    details: list[Any] = [usage.prompt_tokens_details for usage in usages]
    alike = isinstance(details[0], ChatDetails) and len(set(map(type, details))) == 1
    if not alike or kind.hits is not None:
        return _each(usages)
    cached = [own.cached_tokens for own in details]
    written = [own.written for own in details]
    if kind.no_writes is not None and None in written:
        written = [
            kind.no_writes if w is None and r is not None else w for r, w in zip(cached, written, strict=True)
        ]
    prompt, output = [u.prompt_tokens for u in usages], [u.completion_tokens for u in usages]
    return prompt, cached, written, output, ((),) * len(usages)


def choices_of(raw: msgspec.Raw) -> int:
    """Number of choices of a reply; 0 if the log omits them."""
    if bytes(raw)[:1] != b"[":
        return 0
    return len(msgspec.json.decode(raw, type=list[msgspec.Raw]))


def has_chat_usage(sample: Mapping[str, Any]) -> bool:
    """Whether the entry has a usage object of the Chat Completions API."""
    usage = sample.get("usage")
    return isinstance(usage, dict) and "prompt_tokens" in usage


def from_provider(sample: Mapping[str, Any], *names: str) -> bool:
    """Whether the envelope names one of these providers."""
    provider = sample.get("provider")
    return isinstance(provider, str) and provider.lower().replace("-", "_") in names


def has_field(sample: Mapping[str, Any], *names: str) -> bool:
    """Whether the usage object has one of these fields."""
    usage = sample.get("usage")
    return isinstance(usage, dict) and not usage.keys().isdisjoint(names)


def chat_format(
    name: str,
    looks: Callable[[Mapping[str, Any]], bool],
    *,
    provider: str = "",
    usage: type[ChatUsage] = ChatUsage,
    counts: Callable[[Any], Counts] = chat_counts,
    envelope: type[Envelope] = Envelope,
    unfold: Callable[[Any], Any] | None = None,
    tiers: Callable[[Sequence[Any]], Sequence[str]] | None = None,
) -> EnvelopeFormat:
    """A format of this family; `looks` is only asked of entries with such a usage object."""
    return EnvelopeFormat(
        name=name,
        row=row_of(usage, envelope),
        usage=usage,
        counts=counts,
        all_counts=all_chat_counts if counts is chat_counts else None,
        looks=lambda sample: has_chat_usage(sample) and looks(sample),
        provider=provider or name,
        unfold=unfold,
        tiers=tiers,
        contract=provider_caching(provider or name),
    )
