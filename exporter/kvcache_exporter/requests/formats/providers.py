"""Names of providers: those of logs and gateways, OpenTelemetry's, and LiteLLM's."""

import re

_SPELLINGS = {
    "azure_openai": "azure", "az_ai_openai": "azure", "az_ai_inference": "azure_ai",
    "azure_ai_openai": "azure", "azure_ai_inference": "azure_ai",
    "aws_bedrock": "bedrock", "amazon_bedrock": "bedrock", "x_ai": "xai",
    "gcp_gemini": "gemini", "google": "gemini", "gcp_vertex_ai": "vertex_ai", "vertexai": "vertex_ai",
    "mistral_ai": "mistral", "mistralai": "mistral", "moonshotai": "moonshot", "kimi": "moonshot",
    "fireworks": "fireworks_ai", "together": "together_ai", "qwen": "dashscope", "alibaba": "dashscope",
}  # fmt: skip
"""The table's name of a provider, by the names used in logs and in OpenTelemetry."""


def canonical(provider: str) -> str:
    """LiteLLM's name of a provider, in lower case, for look-ups; labels keep the log's name."""
    word = re.sub(r"[-. ]", "_", provider.lower())
    return _SPELLINGS.get(word, word)
