"""SGLang, 0.4.6 to 0.5.23.

Labelled counters appear on the page only once they are used, and the two counters of the hit rate have
different labels (`is_streaming`, `cache_source`), so each is summed before they are divided. The engine's own
`cache_hit_rate` is that of the last batch and is never read.
"""

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines.base import Basis, Engine, Fact, Rule, Source

_PROMPT = Source("prompt_tokens")
_CACHED = Source("cached_tokens")
_UNCACHED = Source("uncached_prompt_tokens_histogram", part="sum")
_HIT_MODES = ("device_hit", "host_hit", "storage_hit")
_QUEUE = (("priority", ("",)),)  # with priority scheduling the other values are parts of this total
_KV_POOL = (("pool", ("", "kv")),)


def _cached_from(*values: str) -> tuple[Source, ...]:
    return (Source("cached_tokens", (("cache_source", values),)),)


def _lookups(effective: tuple[str, ...], realtime: tuple[str, ...]) -> tuple[Source, ...]:
    """First attempts (0.5.18 and newer), else all prefill batches, where retracted requests count again."""
    sources = (Source("prefill_effective_tokens", (("mode", effective),)),)
    return (*sources, Source("realtime_tokens", (("mode", realtime),))) if realtime else sources


SGLANG = Engine(
    name="sglang",
    prefixes=("sglang:", "sglang_"),
    rank_labels=("dp_rank", "worker_addr"),
    merged_label="worker_addr",
    sole_rank_is_none=True,
    twin_labels=("tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank"),
    process_families=("num_retracted_reqs", "num_paused_reqs"),
    alive_families=("prompt_tokens", "num_requests", "time_to_first_token_seconds"),
    rules=(
        Rule(c.PROMPT_TOKENS, (_PROMPT,), needed=True),
        Rule(c.CACHED_PROMPT_TOKENS, _cached_from("", "device", "total"), tier="device", needed=True),
        Rule(c.CACHED_PROMPT_TOKENS, _cached_from("host"), tier="host"),
        Rule(c.CACHED_PROMPT_TOKENS, _cached_from("storage"), tier="disk"),
        Rule(
            c.PREFIX_QUERY_TOKENS,
            _lookups(("input", *_HIT_MODES), ("prefill_compute", "prefill_cache")),
        ),
        Rule(c.PREFIX_HIT_TOKENS, _lookups(("device_hit",), ("prefill_cache",)), tier="device"),
        Rule(c.PREFIX_HIT_TOKENS, _lookups(("host_hit",), ()), tier="host"),
        Rule(c.PREFIX_HIT_TOKENS, _lookups(("storage_hit",), ()), tier="disk"),
        Rule(
            c.PREEMPTIONS,
            (
                Source("num_retracted_requests"),
                Source("num_retractions", part="sum"),
                Source("total_retracted_reqs", deprecated=True),
            ),
        ),
        Rule(
            c.RECOMPUTED_TOKENS,
            (
                Source(
                    "realtime_tokens",
                    (("mode", ("prefill_compute",)),),
                    minus=Source("prefill_effective_tokens", (("mode", ("input",)),)),
                ),
            ),
        ),
        Rule(
            c.USAGE_RATIO,
            (Source("full_token_usage"), Source("token_usage")),
            tier="device",
            combine="max",
            needed=True,
        ),
        Rule(
            c.USED_TOKENS,
            (Source("kv_used_tokens"), Source("num_used_tokens")),
            tier="device",
            combine="max",
            needed=True,
        ),
        Rule(c.USED_TOKENS, (Source("hicache_host_used_tokens"),), tier="host", combine="max"),
        Rule(c.EVICTED_TOKENS, (Source("evicted_tokens", unranked=True),), tier="device"),
        Rule(c.STORED_TOKENS, (Source("hicache_backup_tokens", _KV_POOL),), tier="host"),
        Rule(c.STORED_TOKENS, (Source("backuped_tokens", unranked=True),), tier="disk"),
        Rule(c.LOADED_TOKENS, (Source("load_back_tokens", _KV_POOL, unranked=True),), tier="host"),
        Rule(c.LOADED_TOKENS, (Source("prefetched_tokens", unranked=True),), tier="disk"),
        Rule(c.STORED_BYTES, (Source("hicache_backup_bytes", _KV_POOL),), tier="host"),
        Rule(c.LOADED_BYTES, (Source("load_back_bytes", _KV_POOL, unranked=True),), tier="host"),
        Rule(
            c.UNDELIVERED_TOKENS, (Source("storage_prefetch_unfulfilled_tokens", unranked=True),), tier="disk"
        ),
        Rule(c.RUNNING_REQUESTS, (Source("num_running_reqs", _QUEUE),), needed=True),
        Rule(c.WAITING_REQUESTS, (Source("num_queue_reqs", _QUEUE),), needed=True),
        Rule(c.ENGINE_REQUESTS, (Source("num_requests"),), needed=True),
        Rule(
            c.ENGINE_PREFILL_SECONDS,
            (Source("per_stage_req_latency_seconds", (("stage", ("prefill_forward",)),), part="sum"),),
        ),
        Rule(c.ENGINE_TTFT, (Source("time_to_first_token_seconds"),), needed=True),
        Rule(c.ENGINE_PROMPT_TOKENS, (Source("prompt_tokens_histogram"),)),
        Rule(c.ENGINE_COMPUTED_PROMPT_TOKENS, (Source("uncached_prompt_tokens_histogram"),)),
    ),
    bases=(
        Basis("prompt", (_CACHED,), _PROMPT, absent_unless=_lookups(("device_hit",), ("prefill_cache",))),
    ),
    facts=(
        Fact("block_size", "page_size"),
        Fact("block_size", "cache_config_info", ("page_size",)),
        Fact("device_tokens", "max_total_num_tokens"),
        Fact("host_tokens", "hicache_host_total_tokens"),
    ),
    # First attempts only: prefills after a retraction hit what the request itself has just freed.
    witnesses=(
        Basis("lookup", _lookups(_HIT_MODES, ()), _lookups(("input", *_HIT_MODES), ())[0]),
        Basis(
            "computed",
            (Source("prompt_tokens_histogram", part="sum", minus=_UNCACHED),),
            Source("prompt_tokens_histogram", part="sum"),
        ),
    ),
    cache_resets=(Source("http_responses", (("endpoint", ("/flush_cache",)), ("status_code", ("200",)))),),
    prefill_tokens=(Source("realtime_tokens", (("mode", ("prefill_compute",)),)),),
)
