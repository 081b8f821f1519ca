"""What providers and engines say about prompt caching: the unit they cache in and the shortest prompt.

Anthropic's minimums are those of LiteLLM's public model table (field prompt_cache_min_tokens), read on
2026-11-29; OpenAI's and DeepSeek's come from their prompt caching guides, the engines' from their defaults.
"""

from typing import NamedTuple


class Caching(NamedTuple):
    """Tokens cached at a time, and the length below which a prompt is never cached."""

    granule: int = 1
    minimum_tokens: int = 0


UNKNOWN_CONTRACT = Caching()
_PROVIDERS: dict[str, Caching] = {
    "openai": Caching(128, 1024),
    "azure": Caching(128, 1024),
    "azure_openai": Caching(128, 1024),
    "deepseek": Caching(64, 64),
    "vllm": Caching(16, 16),
    "hosted_vllm": Caching(16, 16),
    "sglang": Caching(1, 0),
    "trtllm": Caching(32, 32),
    "tensorrt_llm": Caching(32, 32),
}
_ANTHROPIC_DEFAULT = 1024
_ANTHROPIC: dict[str, int] = {
    "claude-fable-5": 512,
    "claude-mythos-5": 512,
    "claude-opus-5": 512,
    "claude-sonnet-5-5": 512,
    "claude-haiku-5-5": 512,
    "claude-sonnet-5": 1024,
    "claude-opus-4-8": 1024,
    "claude-sonnet-4-6": 1024,
    "claude-sonnet-4-5": 1024,
    "claude-opus-4-7": 2048,
    "claude-opus-4-6": 4096,
    "claude-opus-4-5": 4096,
    "claude-haiku-4-5": 4096,
}
_LONGEST_FIRST = sorted(_ANTHROPIC, key=len, reverse=True)


def caching(provider: str, model_name: str, otherwise: Caching) -> Caching:
    """The contract of a provider or engine; `otherwise` where its name is not known.

    Claude keeps its own minimum wherever it is hosted.
    """
    _, claude, version = model_name.lower().partition("claude-")
    if claude:
        return Caching(1, _claude_minimum(claude + version.replace(".", "-")))
    return _PROVIDERS.get(provider.lower().replace("-", "_"), otherwise)


def provider_caching(provider: str) -> Caching:
    """The contract of a provider in the table."""
    return _PROVIDERS[provider]


def _claude_minimum(model: str) -> int:
    return next((_ANTHROPIC[p] for p in _LONGEST_FIRST if model.startswith(p)), _ANTHROPIC_DEFAULT)
