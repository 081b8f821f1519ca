"""The sections of the configuration for usage logs, OTLP and KV events."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from kvcache_exporter.config import kinds
from kvcache_exporter.config import labels as label_kinds
from kvcache_exporter.config.endpoint import ENDPOINT
from kvcache_exporter.config.kafka_section import KafkaTopics
from kvcache_exporter.config.section import MIB, Problems, Section, choice_conflicts
from kvcache_exporter.model import CUSTOM_LITERALS, CUSTOM_PATHS

MOST_BANDS = 16
MOST_GRANULE = 65536
CUSTOM_FIELDS = frozenset((*CUSTOM_PATHS, *CUSTOM_LITERALS))

FORMATS_WITH_FIELDS = ("custom", "envoy_ai_gateway")
"""Formats whose keys the operator chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpConfig(Section):
    join: Annotated[str | None, kinds.NAME] = None
    join_window: Annotated[float, kinds.duration(1.0, 3600.0)] = 120.0
    join_requests: Annotated[int, kinds.integer(1, 50_000)] = 20_000
    max_body_bytes: Annotated[int, kinds.size(1 << 10, 64 * MIB)] = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSource(Section):
    ORIGINS: ClassVar[tuple[str, ...]] = ("paths", "kafka", "otlp")
    """Where the requests come from: a source has exactly one of these keys."""
    ONLY_OF_LOGS: ClassVar[tuple[str, ...]] = ("format", "start_at", "max_line_bytes")

    name: Annotated[str, kinds.NAME]
    format: Annotated[str, kinds.Choice("format")] = "auto"
    paths: Annotated[tuple[Annotated[str, kinds.FILE], ...], kinds.NonEmpty()] = ()
    otlp: OtlpConfig | None = None
    kafka: KafkaTopics | None = None
    start_at: Annotated[str, kinds.Choice("position", ("beginning", "end"))] = "end"
    group_by: Annotated[str, kinds.TEXT] = ""
    length_bands: Annotated[tuple[Annotated[int, kinds.integer(1, 100_000_000)], ...], kinds.NonEmpty()] = ()
    model_name: Annotated[str, kinds.TEXT] = ""
    provider: Annotated[str, kinds.TEXT] = ""
    granule: Annotated[int | None, kinds.integer(1, MOST_GRANULE)] = None
    fields: Annotated[tuple[tuple[str, str], ...], label_kinds.Fields(CUSTOM_FIELDS)] = ()
    max_line_bytes: Annotated[int, kinds.size(1 << 10, 256 * MIB)] = 8 * MIB

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        yield from choice_conflicts(given, cls.ORIGINS)
        if "otlp" in given:
            for key in cls.ONLY_OF_LOGS:
                if key in given:
                    yield key, "does not apply to a source with otlp; remove it"
        if {"kafka", "start_at"} <= given:
            yield "start_at", "belongs into the section kafka of a Kafka source; move it there"

    def problems(self) -> Problems:
        if self.format == "custom" and "prompt_tokens" not in dict(self.fields):
            yield "fields", "format custom needs fields with prompt_tokens; add it"
        if self.fields and self.format not in FORMATS_WITH_FIELDS:
            known = " and ".join(FORMATS_WITH_FIELDS)
            yield "fields", f"only formats {known} have fields, this one is {self.format}; remove them"
        literals = [name for name, _ in self.fields if name in CUSTOM_LITERALS]
        if literals and self.format == "envoy_ai_gateway":
            yield f"fields.{literals[0]}", "only format custom has this field; remove it"
        bands = self.length_bands
        if list(bands) != sorted(set(bands)) or len(bands) > MOST_BANDS:
            found = ", ".join(map(str, bands))
            yield "length_bands", f"found {found}, expected at most {MOST_BANDS} lengths in rising order"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource(Section):
    target: Annotated[str, kinds.NAME]
    endpoint: Annotated[str, ENDPOINT]
    replay: Annotated[str | None, ENDPOINT] = None
    topic: Annotated[str, kinds.TEXT] = ""
    bind: Annotated[bool, kinds.BOOLEAN] = False
    ranks: Annotated[int, kinds.integer(1, 1024)] = 1
    model_name: Annotated[str, kinds.TEXT] = ""

    def problems(self) -> Problems:
        if self.endpoint.startswith("tcp://*") and not self.bind:
            yield "endpoint", "the host * can only be listened on; name the engine's host, or set bind: true"
        if (self.replay or "").startswith("tcp://*"):
            yield "replay", "the host * cannot be connected to; name the engine's host"
        for key in ("endpoint", "replay"):
            endpoint = getattr(self, key)
            if self.ranks > 1 and endpoint is not None:
                yield from self._rank_problems(key, endpoint)

    def _rank_problems(self, key: str, endpoint: str) -> Problems:
        port = endpoint.rpartition(":")[2]
        if not endpoint.startswith("tcp://"):
            yield key, "only tcp endpoints have a port for each rank; use tcp or set ranks: 1"
        elif int(port) + self.ranks - 1 > 65535:
            yield key, f"the last of {self.ranks} ranks would have a port above 65535; use lower ports"
