"""vLLM, 0.8.5 to 0.32: engines V0 and V1, old and new names.

Prompt and cached tokens are counted once per request, at its first token (0.16 and newer). Up to 0.26,
lookups (`prefix_cache_queries`) are counted again at every scheduling attempt. NIXL (0.11.2) and the
offloading connector (0.16, with other names from 0.24) count bytes; their names are from the sources of
vLLM's KV connectors. LMCache adds its own families.
"""

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines import lmcache
from kvcache_exporter.engines.base import Basis, Engine, Fact, Rule, Source

_COMPUTED = Source("request_prefill_kv_computed_tokens", part="sum")
_REQUEST_PROMPT = Source("request_prompt_tokens", part="sum")
_CACHED_OF_FINISHED = Source("request_prompt_tokens", part="sum", minus=_COMPUTED)
# 0.16 to 0.19 count the last token of a fully cached prompt both as a hit and as recomputed.
_LOCAL_HITS = Source(
    "prompt_tokens_by_source",
    (("source", ("local_cache_hit",)),),
    minus=Source("prompt_tokens_recomputed"),
    minus_optional=True,
)
_HITS = Source("prefix_cache_hits")
_QUERIES = Source("prefix_cache_queries")
_OLD_HITS = Source("gpu_prefix_cache_hits", deprecated=True)
_OLD_QUERIES = Source("gpu_prefix_cache_queries", deprecated=True)
_EXTERNAL_HITS = Source("external_prefix_cache_hits")


def _by_source(*values: str) -> Source:
    return Source("prompt_tokens_cached_by_source", (("source", values),))


def _offload(direction: str, *values: str) -> tuple[Source, ...]:
    """Bytes that the offloading connector moved in one direction, a family of their own from 0.24 on."""
    return (
        Source(f"kv_offload_{direction}_bytes"),
        Source("kv_offload_total_bytes", (("transfer_type", values),)),
    )


VLLM = Engine(
    name="vllm",
    prefixes=("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"),
    rank_labels=("engine",),
    foreign_labels=("server",),
    twin_labels=(lmcache.WORKER,),
    default_block_size=16,
    version_path="/version",
    rules=(
        Rule(c.PROMPT_TOKENS, (Source("prompt_tokens"),), needed=True),
        Rule(
            c.CACHED_PROMPT_TOKENS,
            (_LOCAL_HITS, Source("prompt_tokens_cached"), _CACHED_OF_FINISHED),
            tier="device",
            needed=True,
        ),
        Rule(
            c.CACHED_PROMPT_TOKENS,
            (Source("prompt_tokens_by_source", (("source", ("external_kv_transfer",)),)),),
            tier="remote",
        ),
        Rule(c.PREFIX_QUERY_TOKENS, (_QUERIES, _OLD_QUERIES), needed=True),
        Rule(c.PREFIX_HIT_TOKENS, (_HITS, _OLD_HITS), tier="device", needed=True),
        Rule(c.PREFIX_HIT_TOKENS, (_by_source("host"),), tier="host"),
        Rule(c.PREFIX_HIT_TOKENS, (_by_source("disk"),), tier="disk"),
        Rule(c.PREFIX_HIT_TOKENS, (_by_source("p2p", "external_unspecified"), _EXTERNAL_HITS), tier="remote"),
        Rule(c.PREEMPTIONS, (Source("num_preemptions"),), needed=True),
        Rule(
            c.USAGE_RATIO,
            (Source("kv_cache_usage_perc"), Source("gpu_cache_usage_perc", deprecated=True)),
            tier="device",
            combine="max",
            needed=True,
        ),
        Rule(
            c.USAGE_RATIO,
            (Source("kv_offload_cpu_cache_usage_perc"), Source("cpu_cache_usage_perc")),
            tier="host",
            combine="max",
        ),
        Rule(c.STORED_BYTES, _offload("store", "GPU_to_CPU", "gpu_to_cpu"), tier="host"),
        Rule(c.LOADED_BYTES, _offload("load", "CPU_to_GPU", "cpu_to_gpu"), tier="host"),
        Rule(c.LOADED_BYTES, (Source("nixl_bytes_transferred", part="sum"),), tier="remote"),
        Rule(c.LOAD_FAILURES, (Source("nixl_num_failed_transfers"),), tier="remote"),
        *lmcache.beside_the_engine("lmcache:", bare=True),
        Rule(c.RUNNING_REQUESTS, (Source("num_requests_running"),), needed=True),
        Rule(c.WAITING_REQUESTS, (Source("num_requests_waiting"),), needed=True),
        Rule(c.ENGINE_REQUESTS, (Source("request_success"),), needed=True),
        Rule(c.ENGINE_PREFILL_SECONDS, (Source("request_prefill_time_seconds", part="sum"),), needed=True),
        Rule(c.ENGINE_TTFT, (Source("time_to_first_token_seconds"),), needed=True),
        Rule(c.ENGINE_PROMPT_TOKENS, (Source("request_prompt_tokens"),), needed=True),
        Rule(c.ENGINE_COMPUTED_PROMPT_TOKENS, (Source("request_prefill_kv_computed_tokens"),), needed=True),
        Rule(c.BLOCK_LIFETIME, (Source("kv_block_lifetime_seconds"),)),
        Rule(c.BLOCK_IDLE, (Source("kv_block_idle_before_evict_seconds"),)),
        Rule(c.BLOCK_REUSE, (Source("kv_block_reuse_gap_seconds"),)),
    ),
    bases=(
        Basis("prompt", (Source("prompt_tokens_cached"),), Source("prompt_tokens")),
        Basis("computed", (_CACHED_OF_FINISHED,), _REQUEST_PROMPT),
        Basis("lookup", (_HITS, _EXTERNAL_HITS), _QUERIES),
        Basis("lookup", (_OLD_HITS, _EXTERNAL_HITS), _OLD_QUERIES),
    ),
    facts=(
        # Of hybrid models, whose attention blocks are larger than what was asked for.
        Fact("block_size", "cache_config_info", ("effective_attention_block_size",)),
        Fact("block_size", "cache_config_info", ("block_size",)),
        Fact("hash_algorithm", "cache_config_info", ("prefix_caching_hash_algo",)),
        Fact("cache_dtype", "cache_config_info", ("cache_dtype",)),
        Fact("prefix_caching", "cache_config_info", ("enable_prefix_caching",)),
        Fact("device_tokens", "cache_config_info", ("kv_cache_size_tokens",)),
        Fact("device_tokens", "cache_config_info", ("num_gpu_blocks", "block_size")),
        Fact("host_tokens", "cache_config_info", ("num_cpu_blocks", "block_size")),
    ),
    # FastAPI's count of calls of the development endpoint; up to 0.25 it answers 200 even if it did nothing.
    cache_resets=(
        Source("http_requests", (("handler", ("/reset_prefix_cache",)), ("status", ("2xx",))), bare=True),
    ),
    prefill_tokens=(_COMPUTED,),
)
