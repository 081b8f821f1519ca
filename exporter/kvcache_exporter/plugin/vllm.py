"""The vLLM plugin, loaded through the entry-point group `vllm.stat_logger_plugins`: outcomes and TTFT.

vLLM calls a stat logger in its API server process for each engine step, on the thread that serves requests.
Any fault in here switches the plugin off with one line in vLLM's log and never reaches the engine.
"""

import logging
import os
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from kvcache_exporter.plugin.counters import RankCounters, families
from kvcache_exporter.plugin.finished import read_finished
from kvcache_exporter.plugin.options import Options, read_options

log = logging.getLogger("vllm.plugins.kvcache_exporter")

# The unit in which hits end, in tokens; hybrid models do not allow an end at every block.
_BLOCK_FIELDS = ("cache_hit_alignment_tokens", "block_size")
_DEFAULT_BLOCK = 16


class CacheOutcomeLogger(StatLoggerBase):  # type: ignore[misc]  # Any where vLLM is not installed
    """One instance per data-parallel rank."""

    def __init__(self, vllm_config: Any, engine_index: int = 0, *_: Any, **__: Any) -> None:
        self._config, self._engine = vllm_config, str(engine_index)
        self._counters: RankCounters | None = None
        self._off = False
        try:
            self._options = read_options(os.environ)
            families()
        except Exception as error:  # noqa: BLE001 -- nothing of ours may stop the engine
            self._switch_off(error)

    def record(self, _scheduler: Any = None, iteration_stats: Any = None, *_: Any, **__: Any) -> None:
        if self._off or iteration_stats is None:
            return
        try:
            if finished := iteration_stats.finished_requests:
                counters = self._counters or self._open()
                for stats in finished:
                    counters.count(read_finished(stats))
        except Exception as error:  # noqa: BLE001
            self._switch_off(error)

    def log_engine_initialized(self) -> None:
        """The block size is final now, so that all outcomes are on the page before the first request."""
        if self._off:
            return
        try:
            self._open()
        except Exception as error:  # noqa: BLE001
            self._switch_off(error)

    def _open(self) -> RankCounters:
        block = _block_size(self._config, self._options)
        name = _model_name(self._config)
        if self._counters is None:
            self._counters = RankCounters(families(), name, self._engine, self._options.full_hit, block)
            log.info(
                "kvcache-exporter plugin: counting outcomes of %s, engine %s, blocks of %d tokens",
                name,
                self._engine,
                block,
            )
        return self._counters

    def _switch_off(self, error: Exception) -> None:
        self._off = True
        log.error(
            "kvcache-exporter plugin: switched off, the engine goes on without it: %s: %s",
            type(error).__name__,
            error,
        )


# A future vLLM may add abstract methods; without this it could not start with the plugin.
CacheOutcomeLogger.__abstractmethods__ = frozenset()


def _block_size(config: Any, options: Options) -> int:
    cache_config = getattr(config, "cache_config", None)
    found = (getattr(cache_config, name, None) for name in _BLOCK_FIELDS)
    return options.block_size or next((n for n in found if isinstance(n, int) and n > 0), _DEFAULT_BLOCK)


def _model_name(config: Any) -> str:
    """The label `model_name` of vLLM's own metrics."""
    model = getattr(config, "model_config", None)
    name = getattr(model, "served_model_name", None) or getattr(model, "model", "")
    return str(name[0] if isinstance(name, list | tuple) else name)
