"""The engines whose pages the exporter reads, and the caches and routers that run beside them.

To add one, write its table as a module beside these, put it into `ENGINES`, and add a fixture pair (a page
and the exposition expected of it) under `tests/fixtures/engines/`.
"""

from kvcache_exporter.engines.base import Engine
from kvcache_exporter.engines.lmcache import LMCACHE
from kvcache_exporter.engines.routers import ROUTERS
from kvcache_exporter.engines.sglang import SGLANG
from kvcache_exporter.engines.trtllm import TRTLLM
from kvcache_exporter.engines.vllm import VLLM

ENGINES: tuple[Engine, ...] = (VLLM, SGLANG, TRTLLM, LMCACHE, *ROUTERS)


def candidates(name: str) -> list[Engine]:
    """The engines that a page may be from: the one named in the configuration, or all for `auto`."""
    return [engine for engine in ENGINES if name in ("auto", engine.name)]
