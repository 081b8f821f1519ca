"""TensorRT-LLM: /prometheus/metrics of `trtllm-serve`, also as passed on by Dynamo.

Names are those of `tensorrt_llm/metrics/collector.py` at 050f80de. Request counters need
`return_perf_metrics`. Version 1.1 does not count cached tokens; newer ones count them, and blocks as well.
The gauges `kv_cache_hit_rate` and `kv_cache_iter_reuse_rate` are ratios over unknown times and never read.
"""

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines.base import Basis, Engine, Fact, Rule, Source

_PROMPT = Source("prompt_tokens")
_CACHED = Source("prompt_cached_tokens")
_REUSED = Source("kv_cache_reused_blocks")
_LOOKED_UP = Source("kv_cache_missed_blocks", plus=_REUSED)


def _from_tier(name: str) -> Source:
    """Cached tokens of one tier; two levels in the same memory (hot and cold) are one tier."""
    return Source("prompt_cache_hit_tokens", (("cache_tier", (name,)),))


TRTLLM = Engine(
    name="trtllm",
    prefixes=("trtllm_", "trtllm:"),
    metrics_path="/prometheus/metrics",
    version_path="/version",
    rules=(
        Rule(c.PROMPT_TOKENS, (_PROMPT,)),
        Rule(c.CACHED_PROMPT_TOKENS, (_from_tier("gpu"), _CACHED), tier="device"),
        Rule(c.CACHED_PROMPT_TOKENS, (_from_tier("host"),), tier="host"),
        Rule(c.CACHED_PROMPT_TOKENS, (_from_tier("disk"),), tier="disk"),
        Rule(c.USAGE_RATIO, (Source("kv_cache_utilization"),), tier="device", combine="max"),
        Rule(c.USAGE_RATIO, (Source("kv_cache_host_utilization"),), tier="host", combine="max"),
        Rule(c.STORED_BYTES, (Source("kv_cache_offload_bytes"),), tier="host"),
        Rule(c.LOADED_BYTES, (Source("kv_cache_onboard_bytes"),), tier="host"),
        Rule(c.RUNNING_REQUESTS, (Source("num_requests_running"),)),
        Rule(c.WAITING_REQUESTS, (Source("num_requests_waiting"),)),
        Rule(c.ENGINE_REQUESTS, (Source("request_success"),), needed=True),
        Rule(c.ENGINE_PREFILL_SECONDS, (Source("request_prefill_time_seconds", part="sum"),)),
        Rule(c.ENGINE_TTFT, (Source("time_to_first_token_seconds"),), needed=True),
    ),
    bases=(
        Basis("prompt", (_CACHED,), _PROMPT),
        # In blocks, which is fine: only their ratio is used.
        Basis("lookup", (_REUSED,), _LOOKED_UP),
    ),
    facts=(Fact("block_size", "kv_cache_tokens_per_block"),),
    prefill_tokens=(Source("prompt_tokens", minus=_CACHED),),
    alive_families=("request_success",),
)
