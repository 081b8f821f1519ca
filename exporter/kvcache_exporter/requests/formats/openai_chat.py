"""OpenAI Chat Completions usage: `prompt_tokens` includes cache reads and writes."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from kvcache_exporter.requests.formats.chat_usage import ChatDetails, ChatUsage, chat_format
from kvcache_exporter.requests.formats.tiers import AUDIO, by_fields, with_word
from kvcache_exporter.requests.formats.values import Tokens


class OpenaiDetails(ChatDetails, gc=False):
    """`usage.prompt_tokens_details`."""

    written: Tokens = msgspec.field(default=None, name="cache_write_tokens")  # type: ignore[misc]
    audio_tokens: Tokens = None


class OutputDetails(msgspec.Struct, gc=False):
    """`usage.completion_tokens_details`."""

    audio_tokens: Tokens = None


class OpenaiUsage(ChatUsage, gc=False):
    """`usage`."""

    no_writes: ClassVar[int | None] = 0
    prompt_tokens_details: OpenaiDetails | list[Any] | str | float | bool | None = None
    completion_tokens_details: OutputDetails | list[Any] | str | float | bool | None = None


def openai_tiers(rows: Sequence[Any]) -> Sequence[str]:
    """The service tier of the reply, and whether it has audio tokens."""
    tiers, usages = _service_tiers(rows), [row.usage for row in rows]
    # Most logs have none of these fields, and checking for them is the only cost.
    before = [d.audio_tokens for u in usages if type(d := u.prompt_tokens_details) is OpenaiDetails]
    after = [d.audio_tokens for u in usages if type(d := u.completion_tokens_details) is OutputDetails]
    return with_word(AUDIO, list(map(_has_sound, usages)), tiers) if any(before) or any(after) else tiers


def _has_sound(usage: OpenaiUsage) -> bool:
    before, after = usage.prompt_tokens_details, usage.completion_tokens_details
    return bool(
        (isinstance(before, OpenaiDetails) and before.audio_tokens)
        or (isinstance(after, OutputDetails) and after.audio_tokens)
    )


_service_tiers = by_fields("service_tier")

OPENAI_CHAT = chat_format(
    "openai_chat", lambda _sample: True, provider="openai", usage=OpenaiUsage, tiers=openai_tiers
)
