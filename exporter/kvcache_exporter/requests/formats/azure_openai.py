"""Azure OpenAI usage: OpenAI's, but Assistants runs spell the details `prompt_token_details`."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from kvcache_exporter.requests.formats.chat_usage import (
    ChatDetails,
    ChatUsage,
    chat_counts,
    chat_format,
    from_provider,
    has_field,
)
from kvcache_exporter.requests.formats.usual import Counts
from kvcache_exporter.requests.formats.values import Tokens


class AzureDetails(ChatDetails, gc=False):
    """`prompt_tokens_details` in either spelling."""

    written: Tokens = msgspec.field(default=None, name="cache_write_tokens")  # type: ignore[misc]


class AzureUsage(ChatUsage, gc=False):
    """`usage`."""

    no_writes: ClassVar[int | None] = 0
    prompt_tokens_details: AzureDetails | list[Any] | str | float | bool | None = None
    prompt_token_details: AzureDetails | list[Any] | str | float | bool | None = None


def _counts(usage: AzureUsage) -> Counts:
    if usage.prompt_tokens_details is None:
        usage.prompt_tokens_details = usage.prompt_token_details
    return chat_counts(usage)


def _looks(sample: Mapping[str, Any]) -> bool:
    return (
        from_provider(sample, "azure", "azure_openai")
        or has_field(sample, "prompt_token_details")
        or "prompt_filter_results" in sample
    )


AZURE_OPENAI = chat_format("azure_openai", _looks, provider="azure", usage=AzureUsage, counts=_counts)
