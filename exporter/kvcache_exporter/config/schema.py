"""The top level of the configuration: every key with its kind and default. A test compares the docs."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated

from kvcache_exporter.config import kinds
from kvcache_exporter.config.probe_section import ProbeConfig
from kvcache_exporter.config.section import MIB, Problems, Seconds, Section
from kvcache_exporter.config.source_sections import EventSource, RequestSource
from kvcache_exporter.config.target_sections import TargetGroup

NOTHING_TO_DO = (
    "found nothing to do; add targets (engines to scrape), for example "
    'targets: [{static: ["localhost:8000"]}], or requests (usage logs to read), events or probe'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeConfig(Section):
    interval: Seconds = 15.0
    timeout: Seconds = 5.0
    max_age: Annotated[float, kinds.duration(0.0, 86400.0)] = 5.0
    concurrency: Annotated[int, kinds.integer(1, 1024)] = 64
    max_page_bytes: Annotated[int, kinds.size(1 << 10, 1 << 30)] = 16 * MIB

    def problems(self) -> Problems:
        if self.timeout > self.interval:
            interval = kinds.duration(0, 0).show(self.interval)
            yield "timeout", f"longer than scrape.interval ({interval}); set at most {interval}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FullHitConfig(Section):
    fraction: Annotated[float, kinds.share()] = 0.05
    max_uncached_tokens: Annotated[int, kinds.integer(0, 10_000_000)] = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeConfig(Section):
    full_hit: FullHitConfig = FullHitConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig(Section):
    series_per_metric: Annotated[int, kinds.integer(1, 1_000_000)] = 10_000
    groups_per_source: Annotated[int, kinds.integer(0, 100_000)] = 200
    models_per_source: Annotated[int, kinds.integer(1, 100_000)] = 200
    blocks_per_source: Annotated[int, kinds.integer(1_000, 100_000_000)] = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig(Section):
    path: Annotated[str | None, kinds.FILE] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdConfig(Section):
    recovered_ratio: Annotated[float, kinds.share()] = 0.8
    max_duration: Seconds = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardConfig(Section):
    index: Annotated[int, kinds.integer(0, 1023)] = 0
    count: Annotated[int, kinds.integer(1, 1024)] = 1

    def problems(self) -> Problems:
        if self.index >= self.count:
            yield "index", f"found {self.index}, expected less than shard.count ({self.count})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesConfig(Section):
    file: Annotated[str, kinds.SECRET_FILE]
    as_of: Annotated[date | None, kinds.DATE] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Section):
    scrape: ScrapeConfig = ScrapeConfig()
    targets: tuple[TargetGroup, ...] = ()
    requests: Annotated[tuple[RequestSource, ...], kinds.Unique("name")] = ()
    events: Annotated[tuple[EventSource, ...], kinds.Unique("target")] = ()
    probe: ProbeConfig | None = None
    outcome: OutcomeConfig = OutcomeConfig()
    prices: PricesConfig | None = None
    limits: LimitsConfig = LimitsConfig()
    state: StateConfig = StateConfig()
    cold: ColdConfig = ColdConfig()
    shard: ShardConfig = ShardConfig()

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        if not {"targets", "requests", "events", "probe"} & given:
            yield "", NOTHING_TO_DO

    def problems(self) -> Problems:
        if not (self.targets or self.requests or self.events or self.probe):
            yield "", NOTHING_TO_DO
        receiving = [source for source in self.requests if source.otlp]
        if len(receiving) > 1:
            names = " and ".join(source.name for source in receiving)
            yield "requests", f"found otlp in {names}, but there is one /v1/traces; leave it in one of them"
        logs = {source.name for source in self.requests if not source.otlp}
        for join in (source.otlp.join for source in receiving if source.otlp):
            if join is not None and join not in logs:
                yield (
                    "requests",
                    f'otlp.join names "{join}", which is no source with paths or kafka; add or rename one',
                )
