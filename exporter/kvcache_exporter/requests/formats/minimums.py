"""Prompt caching by provider and engine: the unit, the shortest cacheable prompt, and the retention.

Collected on 2026-11-29 from the sources named in each table. A minimum that no source states is 0, so a
prompt without a hit is a miss. A wrong minimum can only swap `miss` and `uncacheable`.
"""

from typing import NamedTuple

from kvcache_exporter.requests.formats.providers import canonical


class Caching(NamedTuple):
    """Tokens cached at a time, and the length below which a prompt is never cached."""

    granule: int = 1
    minimum_tokens: int = 0

    def by(self, granule: int) -> "Caching":
        """The same for another block size, which is also the minimum of engines that cache whole blocks."""
        return Caching(granule, granule if self.minimum_tokens == self.granule else self.minimum_tokens)


UNKNOWN_CONTRACT = Caching()
_PROVIDERS: dict[str, Caching] = {
    "openai": Caching(128, 1024),  # OpenAI's prompt caching guide
    "azure": Caching(128, 1024),  # the same on learn.microsoft.com
    "deepseek": Caching(64, 64),  # api-docs.deepseek.com, kv_cache guide
    "dashscope": Caching(1, 1024),  # alibabacloud.com, context-cache, page of 2026-10-11
    "gemini": Caching(1, 1024),  # the lowest of any model; see the models below
    "vllm": Caching(16, 16),  # defaults of the engines from here on
    "hosted_vllm": Caching(16, 16),
    "sglang": Caching(1, 0),
    "trtllm": Caching(32, 32),
    "tensorrt_llm": Caching(32, 32),
}


class _Family(NamedTuple):
    """A family of models whose minimum depends on the model's name, on any host."""

    marker: str
    """Prefix of the part of the name that identifies the model."""
    otherwise: int
    minimums: dict[str, int]
    """By prefix of the name; the longest that matches wins. Dots count as hyphens."""


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


# Seconds for which an unused prefix is kept, the longest that a source states: OpenAI's guide
# (usually 5 to 10 minutes, always within the hour; GPT-5.6 30 minutes), Anthropic's and AWS's (5 minutes
# unless the write says 1 hour), Alibaba's context cache (5 minutes). Gemini's implicit and DeepSeek's disk
# cache promise no time.
_KEPT_BY_MODEL = (("claude-", 300.0), ("amazon.nova-", 300.0), ("gpt-5.6", 1800.0))
_KEPT_BY_PROVIDER = {"openai": 3600.0, "azure": 3600.0, "dashscope": 300.0}


def kept_seconds(provider: str, model_name: str) -> float:
    """Seconds for which a provider keeps an unused prefix, unless a write asked for longer; 0 if unknown."""
    model = model_name.lower()
    found = next((kept for marker, kept in _KEPT_BY_MODEL if marker in model), 0.0)
    return found or _KEPT_BY_PROVIDER.get(canonical(provider), 0.0)


def caching(provider: str, model_name: str, otherwise: Caching) -> Caching:
    """The contract of a provider or engine; `otherwise` if its name is unknown.

    Claude, Gemini and Nova keep their own minimum wherever they are hosted.
    """
    model = model_name.lower()
    for family in _FAMILIES:
        _, found, version = model.partition(family.marker)
        if found:
            return Caching(1, _minimum(family, (found + version).replace(".", "-")))
    return _PROVIDERS.get(canonical(provider), otherwise)


def provider_caching(provider: str) -> Caching:
    """The contract of a provider in the table, else UNKNOWN_CONTRACT."""
    return _PROVIDERS.get(provider, UNKNOWN_CONTRACT)


def _minimum(family: _Family, model: str) -> int:
    fitting = [prefix for prefix in family.minimums if model.startswith(prefix)]
    return family.minimums[max(fitting, key=len)] if fitting else family.otherwise
