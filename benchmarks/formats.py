"""Throughput of every log format from file to counters, compared with mtail on the same file.

A file repeats one line of the format's sample with different counts; mtail's program extracts the same counts
in the order of the line.
"""

import random
import re
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.mtail import installed, mtail_seconds
from benchmarks.reading import read_all
from benchmarks.timing import Row, cpu_seconds
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions

SAMPLES = Path(__file__).parents[1] / "tests" / "fixtures" / "logs"
BYTES = 12_000_000
_ID = re.compile(rb'"(?:request_id|id)\\?": ?\\?"([^"\\]+)')
_EVENT = b'{"ts":"2026-11-29T10:00:02.000Z","request_id":"%d","type":"content_block_delta",'
_TEXT = _EVENT + b'"index":0,"delta":{"type":"text_delta","text":"a few words"}}\n'
BEFORE = {"anthropic_stream": _TEXT * 10}
"""Lines of a request that precede the one with its counts; %d is its id."""
CHAT = {
    "model": "model",
    "ttft": "ttft_ms",
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "output": "completion_tokens",
}
INPUT = {**CHAT, "prompt": "input_tokens", "output": "output_tokens"}
MESSAGES = {**INPUT, "cached": "cache_read_input_tokens"}
LITELLM = {**CHAT, "ttft": "completionStartTime"}
FORMATS: dict[str, dict[str, str]] = {
    "openai_chat": CHAT,
    "openai_responses": INPUT,
    "azure_openai": CHAT,
    "anthropic_messages": MESSAGES,
    "anthropic_stream": MESSAGES,
    "bedrock_converse": {"prompt": "inputTokens", "cached": "cacheReadInputTokens", "output": "outputTokens"},
    "bedrock_invocation_log": {
        "model": "modelId",
        "prompt": "inputTokenCount",
        "cached": "cacheReadInputTokenCount",
        "output": "outputTokenCount",
    },
    "vertex_request_log": {
        "model": "model",
        "prompt": "promptTokenCount",
        "cached": "cachedContentTokenCount",
        "output": "candidatesTokenCount",
    },
    "gemini": {
        "prompt": "total_input_tokens",
        "cached": "total_cached_tokens",
        "output": "total_output_tokens",
    },
    "deepseek": {**CHAT, "cached": "prompt_cache_hit_tokens"},
    "dashscope": CHAT,
    "fireworks": {**CHAT, "cached": "cached-prompt-tokens"},
    "groq": CHAT,
    "mistral": CHAT,
    "moonshot": CHAT,
    "together": CHAT,
    "xai": {**CHAT, "cached": "cached_prompt_text_tokens"},
    "openrouter": {
        "model": "model",
        "ttft": "latency",
        "prompt": "native_tokens_prompt",
        "cached": "native_tokens_cached",
        "output": "native_tokens_completion",
    },
    "vllm": CHAT,
    "sglang_usage": CHAT,
    "sglang_metrics_file": CHAT,
    "sglang_request_log": CHAT,
    "trtllm": CHAT,
    "llamacpp": {"model": "model", "prompt": "prompt_n", "cached": "cache_n", "output": "predicted_n"},
    "dynamo_agent_trace": {**CHAT, "prompt": "input_tokens", "output": "output_tokens"},
    "litellm_slp": {**LITELLM, "cached": "cache_read_input_tokens"},
    "litellm_spendlogs": {**LITELLM, "cached": "cache_read_input_tokens"},
    "litellm_datadog": {**LITELLM, "cached": "cache_read_input_tokens"},
    "helicone": {
        **CHAT,
        "model": "response_model",
        "ttft": "time_to_first_token",
        "cached": "prompt_cache_read_tokens",
    },
    "langfuse": {
        "model": "providedModelName",
        "prompt": "input",
        "cached": "input_cached_tokens",
        "output": "output",
    },
    "kong": {**CHAT, "model": "response_model", "ttft": "time_to_first_token"},
    "apisix_nginx": {"prompt": "usage_prompt", "cached": "usage_cached", "output": "usage_completion"},
    "envoy_ai_gateway": {
        "model": "model",
        "ttft": "ttft",
        "prompt": "llm_input_token",
        "cached": "llm_cached_input_token",
        "output": "llm_output_token",
    },
}


def formats() -> Iterator[Row]:
    for name, fields in FORMATS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "usage.jsonl"
            line, pattern = _line(name, fields)
            requests = _write(path, line, pattern, BEFORE.get(name, b""))
            count = requests * (1 + BEFORE.get(name, b"").count(b"\n"))
            ours = cpu_seconds(partial(read_all, path, name, count, requests), 3) / count
            size = path.stat().st_size // count
            what, shown = f"{name}, lines of {size} bytes", f"{1 / ours:,.0f} lines/s"
            if not installed():
                yield Row(what, shown, "mtail is not installed", 0.0, ">= 2 x")
                continue
            reference = mtail_seconds(path, _program(pattern), Path(folder)) / count
            yield Row(what, shown, f"mtail {1 / reference:,.0f} lines/s", reference / ours, ">= 2 x")


def _line(name: str, fields: dict[str, str]) -> tuple[bytes, str]:
    """A line of the sample with one request, and the expression that finds most of its fields."""
    best = b"", ""
    for line in (SAMPLES / f"{name}.jsonl").read_bytes().splitlines():
        entries = get_format(name).decoder(DecoderOptions()).decode([line])
        pattern = _pattern(line.decode(), fields)
        tells = [type(e) is RequestRecord and e.cached_tokens is not None for e in entries] == [True]
        if tells and {"prompt", "cached"} <= _roles(pattern) and len(pattern) > len(best[1]):
            best = line, pattern
    assert best[1], f"{name}: no line of the sample has the fields {fields}"
    return best


def _pattern(line: str, fields: dict[str, str]) -> str:
    parts = []
    for role, key in fields.items():
        value = r'"(?P<model>[^"\\]+)' if role == "model" else rf'"?(?P<{role}>\d+)'
        found = re.search(part := rf'"{key}\\?": ?\\?{value}', line)
        if found:
            parts.append((found.start(), part))
    return ".*".join(part for _, part in sorted(parts))


def _roles(pattern: str) -> set[str]:
    return set(re.compile(pattern).groupindex)


def _write(path: Path, line: bytes, pattern: str, before: bytes) -> int:
    """Write the line repeatedly with different counts and ids; returns the number of requests."""
    chance, count = random.Random(1), BYTES // (len(line) + len(before))
    found, named = re.search(pattern.encode(), line), _ID.search(line)
    assert found is not None
    spans = [(*found.span(role), role) for role in ("prompt", "cached")]
    spans += [(*named.span(1), "id")] if named else []
    with path.open("wb") as file:
        for number in range(count):
            prompt = chance.randint(2200, 20_000)
            cached = chance.choice([0, prompt // 256 * 128, prompt - 60])
            values = {"prompt": prompt, "cached": cached, "id": number}
            changed = line
            for start, end, role in sorted(spans, reverse=True):
                changed = b"%b%d%b" % (changed[:start], values[role], changed[end:])
            file.write(before.replace(b"%d", b"%d" % number) + changed + b"\n")
    return count


def _program(pattern: str) -> str:
    """A program with counters by outcome, and a histogram if the log has TTFT."""
    roles = _roles(pattern)
    by, at = (" by model, outcome", "[$model]") if "model" in roles else (" by outcome", "")
    buckets = (
        "0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 60.0"
    )
    sums = {"prompt_tokens_total": "prompt", "cached_tokens_total": "cached", "output_tokens_total": "output"}
    sums = {counter: role for counter, role in sums.items() if role in roles}
    declared = [
        f"counter requests_total{by}",
        *(f"counter {name}{' by model' if at else ''}" for name in sums),
    ]
    added = [f"  {name}{at} += ${role}" for name, role in sums.items()]
    if "ttft" in roles:
        declared.append(f"histogram ttft_seconds{by} buckets {buckets}")
    for outcome, condition in (
        ("miss", "$cached == 0"),
        ("full", "$cached > 0 && $prompt - $cached <= 128"),
        ("partial", "$cached > 0 && $prompt - $cached > 128"),
    ):
        observed = [f'    ttft_seconds{at}["{outcome}"] = $ttft / 1000.0'] if "ttft" in roles else []
        added += [f"  {condition} {{", f'    requests_total{at}["{outcome}"]++', *observed, "  }"]
    return "\n".join([*declared, f"/{pattern}/ {{", *added, "}", ""])
