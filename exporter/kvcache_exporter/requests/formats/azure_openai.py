"""Azure OpenAI usage: OpenAI's, but Assistants runs spell the details `prompt_token_details`."""

from collections.abc import Mapping
from typing import Any

from kvcache_exporter.requests.formats.chat_usage import chat_counts, chat_format, from_provider, has_field
from kvcache_exporter.requests.formats.openai_chat import OpenaiDetails, OpenaiUsage, openai_tiers
from kvcache_exporter.requests.formats.usual import Counts


class AzureUsage(OpenaiUsage, gc=False):
    """`usage`."""

    prompt_token_details: OpenaiDetails | list[Any] | str | float | bool | None = None


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


AZURE_OPENAI = chat_format(
    "azure_openai", _looks, provider="azure", usage=AzureUsage, counts=_counts, tiers=openai_tiers
)
