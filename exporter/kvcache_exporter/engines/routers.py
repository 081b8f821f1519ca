"""Routers: the hits they predicted, the hits that workers delivered, and the workers they chose.

Sources: Dynamo's metrics catalogue (docs.nvidia.com/dynamo, v1.6); llm-d-router's docs/metrics.md at
02d6c2ee; sglang-router 0.3.2 as recorded, and up to 0.2.4 SGLang's docs on the router; production-stack's
`vllm_router/services/metrics_service/__init__.py` at 0c740a25. Lifetime ratios of routers are never read.
"""

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines.base import Engine, Rule, Source

DYNAMO = Engine(
    name="dynamo",
    prefixes=("dynamo_",),
    model_labels=("model",),
    serves=False,
    rules=(
        Rule(c.ROUTER_REQUESTS, (Source("frontend_requests"),)),
        Rule(c.ROUTER_INPUT_TOKENS, (Source("frontend_input_sequence_tokens", part="sum"),)),
        Rule(c.ROUTER_CACHED_TOKENS, (Source("frontend_cached_tokens", part="sum"),)),
        Rule(c.ROUTER_PREDICTED_HIT, (Source("component_router_kv_hit_rate"),)),
        Rule(c.ROUTER_WORKERS, (Source("frontend_model_workers"),)),
    ),
)

LLM_D = Engine(
    name="llm-d",
    prefixes=("llm_d_epp_",),
    model_labels=("target_model_name", "model_name"),
    # Requests are labelled with the chosen endpoint, predictions with the index that made them.
    rank_labels=("endpoint_name", "plugin_name"),
    twin_labels=("producer_name",),
    serves=False,
    rules=(
        Rule(c.ROUTER_REQUESTS, (Source("scheduler_attempts", (("status", ("success",)),)),)),
        Rule(c.ROUTER_INPUT_TOKENS, (Source("request_input_tokens", part="sum"),)),
        Rule(c.ROUTER_CACHED_TOKENS, (Source("request_cached_tokens", part="sum"),)),
        Rule(c.ROUTER_PREDICTED_HIT, (Source("prefix_indexer_hit_ratio"),)),
        Rule(c.ROUTER_WORKERS, (Source("ready_endpoints"),)),
        Rule(c.ROUTER_WORKER_REQUESTS, (Source("inflight_requests"),)),
    ),
)

SGLANG_ROUTER = Engine(
    name="sglang-router",
    prefixes=("smg_", "sgl_router_"),
    model_labels=("model",),
    rank_labels=("worker",),
    serves=False,
    rules=(
        # The only count by worker over plain HTTP; up to 0.2.4 the router counts what it sent.
        Rule(c.ROUTER_REQUESTS, (Source("worker_cb_outcomes"), Source("processed_requests"))),
        Rule(c.ROUTER_PREFIX_MATCHES, (Source("cache_hits"),), tier="hit"),
        Rule(c.ROUTER_PREFIX_MATCHES, (Source("cache_misses"),), tier="miss"),
        Rule(c.ROUTER_WORKERS, (Source("worker_pool_size"), Source("active_workers"))),
        Rule(c.ROUTER_WORKER_HEALTHY, (Source("worker_health"),), combine="max"),
        Rule(c.ROUTER_WORKER_REQUESTS, (Source("worker_requests_active"), Source("running_requests"))),
    ),
)

PRODUCTION_STACK = Engine(
    name="production-stack",
    prefixes=("vllm:",),
    own_label="server",
    model_labels=("model",),
    rank_labels=("server",),
    serves=False,
    rules=(
        Rule(c.ROUTER_REQUESTS, (Source("request_latency_seconds", part="count"),)),
        Rule(c.ROUTER_INPUT_TOKENS, (Source("input_tokens"),)),
        Rule(c.ROUTER_WORKER_HEALTHY, (Source("healthy_pods_total"),), combine="max"),
        Rule(c.ROUTER_WORKER_REQUESTS, (Source("num_requests_running"),)),
    ),
)

ROUTERS = (DYNAMO, LLM_D, SGLANG_ROUTER, PRODUCTION_STACK)
