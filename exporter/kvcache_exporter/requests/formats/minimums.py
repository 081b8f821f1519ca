"""What providers and engines say about prompt caching: its unit, the shortest prompt, how long it is kept.

All of it was read on 2026-11-29; each table says where. A minimum that no source states is 0: a prompt
without a hit is then a miss. A wrong minimum can only swap `miss` and `uncacheable`.
"""

from typing import NamedTuple


class Caching(NamedTuple):
    """Tokens cached at a time, and the length below which a prompt is never cached."""

    granule: int = 1
    minimum_tokens: int = 0

    def by(self, granule: int) -> "Caching":
        """The same for blocks of another size; engines that cache no part of a block have a new minimum."""
        return Caching(granule, granule if self.minimum_tokens == self.granule else self.minimum_tokens)


UNKNOWN_CONTRACT = Caching()
_PROVIDERS: dict[str, Caching] = {
    "openai": Caching(128, 1024),  # OpenAI's prompt caching guide
    "azure": Caching(128, 1024),  # the same on learn.microsoft.com
    "azure_openai": Caching(128, 1024),
    "deepseek": Caching(64, 64),  # api-docs.deepseek.com, kv_cache guide
    "dashscope": Caching(1, 1024),  # alibabacloud.com, context-cache, page of 2026-10-11
    "gemini": Caching(1, 1024),  # the lowest of any model; the models' own stand below
    "vllm": Caching(16, 16),  # defaults of the engines from here on
    "hosted_vllm": Caching(16, 16),
    "sglang": Caching(1, 0),
    "trtllm": Caching(32, 32),
    "tensorrt_llm": Caching(32, 32),
}


class _Family(NamedTuple):
    """Models whose names tell their minimum, whoever hosts them."""

    marker: str
    """Where the telling part of a model's name starts."""
    otherwise: int
    minimums: dict[str, int]
    """By the first part of the name; the longest that fits wins. Dots count as hyphens."""


_CLAUDE = _Family("claude-", 1024, {  # field prompt_cache_min_tokens of LiteLLM's public model table 1.110.2
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
})  # fmt: skip
_GEMINI = _Family("gemini-", 1024, {  # ai.google.dev, caching guide, pages of 2026-05-07 and 2026-10-13
    "gemini-4": 4096,
    "gemini-3": 4096,
    "gemini-3-flash": 1024,
    "gemini-2-5": 2048,
})  # fmt: skip
_NOVA = _Family("amazon.nova-", 1000, {})  # "1K" in the AWS guide to prompt caching
_FAMILIES = (_CLAUDE, _GEMINI, _NOVA)


# Seconds without use after which a prefix is gone, the longest that a source states: OpenAI's guide
# (usually 5 to 10 minutes, always within the hour; GPT-5.6 30 minutes), Anthropic's and AWS's (5 minutes
# unless the write says 1 hour), Alibaba's context cache (5 minutes). Gemini's implicit and DeepSeek's disk
# cache promise no time.
_KEPT_BY_MODEL = (("claude-", 300.0), ("amazon.nova-", 300.0), ("gpt-5.6", 1800.0))
_KEPT_BY_PROVIDER = {"openai": 3600.0, "azure": 3600.0, "azure_openai": 3600.0, "dashscope": 300.0}


def kept_seconds(provider: str, model_name: str) -> float:
    """How long a provider keeps a prefix that nobody uses, unless a write asked for longer; 0 if unknown."""
    model = model_name.lower()
    found = next((kept for marker, kept in _KEPT_BY_MODEL if marker in model), 0.0)
    return found or _KEPT_BY_PROVIDER.get(provider.lower().replace("-", "_"), 0.0)


def caching(provider: str, model_name: str, otherwise: Caching) -> Caching:
    """The contract of a provider or engine; `otherwise` where its name is not known.

    Claude, Gemini and Nova keep their own minimum wherever they are hosted.
    """
    model = model_name.lower()
    for family in _FAMILIES:
        _, found, version = model.partition(family.marker)
        if found:
            return Caching(1, _minimum(family, (found + version).replace(".", "-")))
    return _PROVIDERS.get(provider.lower().replace("-", "_"), otherwise)


def provider_caching(provider: str) -> Caching:
    """The contract of a provider in the table; the unknown one for others."""
    return _PROVIDERS.get(provider, UNKNOWN_CONTRACT)


def _minimum(family: _Family, model: str) -> int:
    fitting = [prefix for prefix in family.minimums if model.startswith(prefix)]
    return family.minimums[max(fitting, key=len)] if fitting else family.otherwise
