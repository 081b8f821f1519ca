"""LMCache: its own pages, and its families on vLLM's page.

Names are those of LMCache's docs/source/production/observability/metrics.rst at 3e65c70a (in-process mode).
Every tensor-parallel worker moves its slice of the same tokens, so one worker is read. Its tiers (memory,
disk, remote) count bytes only; tokens are of tier `remote`, vLLM's name for whatever a connector loads.
"""

from kvcache_exporter import catalogue as c
from kvcache_exporter.engines.base import Engine, Rule, Source

WORKER = "worker_id"


def beside_the_engine(prefix: str = "", *, bare: bool = False) -> tuple[Rule, ...]:
    """The rules for LMCache's families on any page; `bare` if the page has another engine's prefix."""

    def source(family: str) -> tuple[Source, ...]:
        return (Source(prefix + family, bare=bare),)

    return (
        Rule(c.STORED_TOKENS, source("num_stored_tokens"), tier="remote"),
        Rule(c.LOADED_TOKENS, source("num_hit_tokens"), tier="remote"),
        Rule(c.LOADED_BYTES, source("num_remote_read_bytes"), tier="remote"),
        Rule(c.STORED_BYTES, source("num_remote_write_bytes"), tier="remote"),
        Rule(c.USED_BYTES, source("local_cache_usage"), tier="host"),
        Rule(c.USED_BYTES, source("local_storage_usage"), tier="disk"),
        Rule(c.USED_BYTES, source("remote_cache_usage"), tier="remote"),
    )


LMCACHE = Engine(
    name="lmcache",
    prefixes=("lmcache:", "lmcache_"),
    model_labels=("model_name", "served_model_name", "model"),
    twin_labels=(WORKER,),
    serves=False,
    rules=(
        Rule(c.PREFIX_QUERY_TOKENS, (Source("num_lookup_tokens"),)),
        Rule(c.PREFIX_HIT_TOKENS, (Source("num_lookup_hits"),), tier="remote"),
        *beside_the_engine(),
    ),
)
