"""Log formats. To add one:

1. write a module of this package that defines it. A provider that copies the usage object of Chat Completions
   needs a `chat_format` (`moonshot.py`; deepest example `vllm.py`); one with counts of its own an
   `EnvelopeFormat` (`gemini.py`); anything else a class with `name`, `recognises` and `decoder`
   (`sglang_metrics_file.py`);
2. put it into `FORMATS`, before every format that would also recognise its lines: `auto` asks in this order;
3. put a sample and the right values into tests/fixtures/logs/<name>.jsonl and <name>.expected.jsonl.
"""

from kvcache_exporter.requests.formats.anthropic_messages import ANTHROPIC_MESSAGES
from kvcache_exporter.requests.formats.anthropic_stream import ANTHROPIC_STREAM
from kvcache_exporter.requests.formats.auto import Auto
from kvcache_exporter.requests.formats.azure_openai import AZURE_OPENAI
from kvcache_exporter.requests.formats.base import Format
from kvcache_exporter.requests.formats.bedrock_converse import BEDROCK_CONVERSE
from kvcache_exporter.requests.formats.custom import CUSTOM
from kvcache_exporter.requests.formats.dashscope import DASHSCOPE
from kvcache_exporter.requests.formats.deepseek import DEEPSEEK
from kvcache_exporter.requests.formats.fireworks import FIREWORKS
from kvcache_exporter.requests.formats.gemini import GEMINI
from kvcache_exporter.requests.formats.groq import GROQ
from kvcache_exporter.requests.formats.litellm import (
    LITELLM,
    LITELLM_DATADOG,
    LITELLM_JSON_ARRAY,
    LITELLM_SLP,
    LITELLM_SPENDLOGS,
)
from kvcache_exporter.requests.formats.llamacpp import LLAMACPP
from kvcache_exporter.requests.formats.mistral import MISTRAL
from kvcache_exporter.requests.formats.moonshot import MOONSHOT
from kvcache_exporter.requests.formats.ollama import OLLAMA
from kvcache_exporter.requests.formats.openai_chat import OPENAI_CHAT
from kvcache_exporter.requests.formats.openai_responses import OPENAI_RESPONSES
from kvcache_exporter.requests.formats.openrouter import OPENROUTER
from kvcache_exporter.requests.formats.sglang_metrics_file import SGLANG_METRICS_FILE
from kvcache_exporter.requests.formats.sglang_request_log import SGLANG_REQUEST_LOG
from kvcache_exporter.requests.formats.sglang_usage import SGLANG_USAGE
from kvcache_exporter.requests.formats.together import TOGETHER
from kvcache_exporter.requests.formats.trtllm import TRTLLM
from kvcache_exporter.requests.formats.vllm import VLLM
from kvcache_exporter.requests.formats.xai import XAI

_RECOGNISED: tuple[Format, ...] = (
    LITELLM_DATADOG,
    LITELLM_SPENDLOGS,
    LITELLM_SLP,
    LITELLM_JSON_ARRAY,
    LITELLM,
    SGLANG_METRICS_FILE,
    SGLANG_REQUEST_LOG,
    OPENROUTER,
    BEDROCK_CONVERSE,
    GEMINI,
    LLAMACPP,
    OLLAMA,
    DASHSCOPE,
    ANTHROPIC_STREAM,
    ANTHROPIC_MESSAGES,
    OPENAI_RESPONSES,
    AZURE_OPENAI,
    DEEPSEEK,
    FIREWORKS,
    GROQ,
    MISTRAL,
    MOONSHOT,
    TRTLLM,
    VLLM,
    XAI,
    SGLANG_USAGE,
    TOGETHER,
    OPENAI_CHAT,
    CUSTOM,
)
AUTO = Auto(_RECOGNISED)
FORMATS: tuple[Format, ...] = (*_RECOGNISED, AUTO)


def get_format(name: str) -> Format:
    """The format of that name; raises ValueError that lists the names there are."""
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    names = ", ".join(sorted(known.name for known in FORMATS))
    raise ValueError(f"unknown log format {name!r}: use one of {names}")
