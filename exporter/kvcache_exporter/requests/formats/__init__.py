"""Log formats. To add one:

1. Write a module of this package that defines it. For a provider that copies the usage object of Chat
   Completions use `chat_format` (`moonshot.py`; the fullest example is `vllm.py`), for one with other counts
   `EnvelopeFormat` (`gemini.py`), for a log with its own keys `RowFormat` (`kong.py`); for anything else
   write a class with `name`, `recognises` and `decoder` (`sglang_metrics_file.py`; with state between lines,
   `codex_rollout.py`).
2. Add it to `FORMATS`, before every format that would also recognise its lines: `auto` asks in this order.
3. Add a sample and the expected values as tests/fixtures/logs/<name>.jsonl and <name>.expected.jsonl.
"""

from kvcache_exporter.requests.formats.aggregated_usage_apis import AGGREGATED_USAGE_APIS
from kvcache_exporter.requests.formats.anthropic_messages import ANTHROPIC_MESSAGES
from kvcache_exporter.requests.formats.anthropic_stream import ANTHROPIC_STREAM
from kvcache_exporter.requests.formats.apisix_nginx import APISIX_NGINX
from kvcache_exporter.requests.formats.auto import Auto
from kvcache_exporter.requests.formats.azure_openai import AZURE_OPENAI
from kvcache_exporter.requests.formats.base import Format
from kvcache_exporter.requests.formats.bedrock_converse import BEDROCK_CONVERSE
from kvcache_exporter.requests.formats.bedrock_invocation_log import BEDROCK_INVOCATION_LOG
from kvcache_exporter.requests.formats.carriers import Carrier
from kvcache_exporter.requests.formats.claude_code import CLAUDE_CODE
from kvcache_exporter.requests.formats.cloudflare_aig import CLOUDFLARE_AIG
from kvcache_exporter.requests.formats.codex_rollout import CODEX_ROLLOUT
from kvcache_exporter.requests.formats.custom import CUSTOM
from kvcache_exporter.requests.formats.dashscope import DASHSCOPE
from kvcache_exporter.requests.formats.deepseek import DEEPSEEK
from kvcache_exporter.requests.formats.dynamo_agent_trace import DYNAMO_AGENT_TRACE
from kvcache_exporter.requests.formats.envoy_ai_gateway import ENVOY_AI_GATEWAY
from kvcache_exporter.requests.formats.fireworks import FIREWORKS
from kvcache_exporter.requests.formats.gemini import GEMINI
from kvcache_exporter.requests.formats.groq import GROQ
from kvcache_exporter.requests.formats.helicone import HELICONE
from kvcache_exporter.requests.formats.kong import KONG
from kvcache_exporter.requests.formats.langfuse import LANGFUSE
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
from kvcache_exporter.requests.formats.openrouter_activity import OPENROUTER_ACTIVITY
from kvcache_exporter.requests.formats.otlp_traces import OTLP_TRACES
from kvcache_exporter.requests.formats.sglang_metrics_file import SGLANG_METRICS_FILE
from kvcache_exporter.requests.formats.sglang_request_log import SGLANG_REQUEST_LOG
from kvcache_exporter.requests.formats.sglang_usage import SGLANG_USAGE
from kvcache_exporter.requests.formats.together import TOGETHER
from kvcache_exporter.requests.formats.trtllm import TRTLLM
from kvcache_exporter.requests.formats.vertex_request_log import VERTEX_REQUEST_LOG
from kvcache_exporter.requests.formats.vllm import VLLM
from kvcache_exporter.requests.formats.xai import XAI

_RECOGNISED: tuple[Format, ...] = (
    OTLP_TRACES,
    CLAUDE_CODE,
    CODEX_ROLLOUT,
    BEDROCK_INVOCATION_LOG,
    VERTEX_REQUEST_LOG,
    DYNAMO_AGENT_TRACE,
    AGGREGATED_USAGE_APIS,
    KONG,
    LANGFUSE,
    HELICONE,
    CLOUDFLARE_AIG,
    APISIX_NGINX,
    ENVOY_AI_GATEWAY,
    OPENROUTER_ACTIVITY,
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
CARRIERS: tuple[Format, ...] = tuple(
    Carrier(name, AUTO) for name in ("docker_json", "k8s_cri", "fluentbit_vector")
)
FORMATS: tuple[Format, ...] = (*_RECOGNISED, *CARRIERS, AUTO)


def get_format(name: str) -> Format:
    """The format of that name; raises a ValueError that lists the known names."""
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    names = ", ".join(sorted(known.name for known in FORMATS))
    raise ValueError(f"unknown log format {name!r}: use one of {names}")
