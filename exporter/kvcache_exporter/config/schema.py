"""What the configuration holds: every key with its kind and default; the docs are tested against this."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kvcache_exporter.config import kinds
from kvcache_exporter.config import labels as label_kinds
from kvcache_exporter.config.endpoint import ENDPOINT
from kvcache_exporter.model import CUSTOM_LITERALS, CUSTOM_PATHS

MIB = 1 << 20
Problems = Iterator[tuple[str, str]]
"""Pairs of a key ("" for the mapping itself) and what is wrong with it beside its kind."""
NOTHING_TO_DO = (
    "found neither targets nor requests, so there is nothing to do; add targets (engines to scrape), "
    'for example targets: [{static: ["localhost:8000"]}], or requests (usage logs to read)'
)
_MOVE_TO_FILE = "found a secret in the configuration; write it to a file and name the file in {}"
_NOT_YET = "this version cannot {} yet; remove it"

CUSTOM_FIELDS = frozenset((*CUSTOM_PATHS, *CUSTOM_LITERALS))

Seconds = Annotated[float, kinds.duration(0.1, 86400.0)]


class Section:
    """A mapping of the configuration, read key by key from the annotations of its dataclass."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Keys that are known but cannot be used, with the reason."""

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:  # noqa: ARG003
        """Problems of which keys stand in the file, whatever their values."""
        yield from ()

    def problems(self) -> Problems:
        """Problems between values; only asked when each value is sound by itself."""
        yield from ()


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
class BasicAuth(Section):
    REFUSED: ClassVar[Mapping[str, str]] = {"password": _MOVE_TO_FILE.format("password_file")}

    username: Annotated[str, kinds.NAME]
    password_file: Annotated[str, kinds.SECRET_FILE]

    def problems(self) -> Problems:
        if ":" in self.username:
            yield "username", "found a colon, which basic authentication does not allow in a name; remove it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings(Section):
    ca_file: Annotated[str | None, kinds.SECRET_FILE] = None
    cert_file: Annotated[str | None, kinds.SECRET_FILE] = None
    key_file: Annotated[str | None, kinds.SECRET_FILE] = None
    server_name: Annotated[str | None, kinds.NAME] = None
    insecure_skip_verify: Annotated[bool, kinds.BOOLEAN] = False

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
            if one in given and other not in given:
                yield one, f"a client certificate needs both files; add {other}"

    def problems(self) -> Problems:
        if self.insecure_skip_verify and self.ca_file:
            yield "insecure_skip_verify", "without verification ca_file has no effect; remove one of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How to speak to the targets of a group."""

    bearer_token_file: str | None = None
    basic_auth: BasicAuth | None = None
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsDiscovery(Section):
    name: Annotated[str, kinds.NAME]
    type: Annotated[str, kinds.Choice("record type", ("A", "AAAA", "SRV"))] = "A"
    port: Annotated[int | None, kinds.integer(1, 65535)] = None
    refresh: Annotated[float, kinds.duration(1.0, 86400.0)] = 30.0

    def problems(self) -> Problems:
        if self.type == "SRV" and self.port is not None:
            yield "port", "SRV records name the port themselves; remove it"
        if self.type != "SRV" and self.port is None:
            yield "", f"{self.type} records do not name a port; add port"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiscovery(Section):
    path: Annotated[str, kinds.FILE]
    refresh: Annotated[float, kinds.duration(1.0, 86400.0)] = 30.0

    def problems(self) -> Problems:
        if not self.path.endswith((".json", ".yml", ".yaml")):
            yield "path", "expected a path that ends in .json, .yml or .yaml; rename the files"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGroup(Section):
    REFUSED: ClassVar[Mapping[str, str]] = {
        "kubernetes": "this version cannot discover targets in Kubernetes yet; use dns, file or static",
        "bearer_token": _MOVE_TO_FILE.format("bearer_token_file"),
        "password": _MOVE_TO_FILE.format("basic_auth.password_file"),
    }
    SOURCES: ClassVar[tuple[str, ...]] = ("static", "file", "dns", "kubernetes")

    engine: Annotated[str, kinds.Choice("engine")] = "auto"
    static: Annotated[tuple[Annotated[str, kinds.AddressText()], ...], kinds.NonEmpty()] = ()
    file: FileDiscovery | None = None
    dns: DnsDiscovery | None = None
    labels: Annotated[tuple[tuple[str, str], ...], label_kinds.Labels()] = ()
    scheme: Annotated[str | None, kinds.Choice("scheme", ("http", "https"))] = None
    path: Annotated[str, kinds.URL_PATH] = "/metrics"
    bearer_token_file: Annotated[str | None, kinds.SECRET_FILE] = None
    basic_auth: BasicAuth | None = None
    tls: TlsSettings | None = None

    @property
    def url_scheme(self) -> str:
        return self.scheme or ("https" if self.tls else "http")

    @property
    def http(self) -> HttpSettings:
        return HttpSettings(
            bearer_token_file=self.bearer_token_file, basic_auth=self.basic_auth, tls=self.tls
        )

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        sources = [source for source in cls.SOURCES if source in given]
        if len(sources) != 1:
            found = " and ".join(sources) or "none of them"
            yield "", f"found {found}, expected exactly one of static, file, dns, kubernetes"
        if "bearer_token_file" in given and "basic_auth" in given:
            yield (
                "bearer_token_file",
                "a request can carry only one of bearer_token_file and basic_auth; remove one",
            )

    def problems(self) -> Problems:
        if self.tls and self.scheme == "http":
            yield "tls", "the scheme is http, where tls has no effect; set scheme to https or remove tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSource(Section):
    name: Annotated[str, kinds.NAME]
    format: Annotated[str, kinds.Choice("format")] = "auto"
    paths: Annotated[tuple[Annotated[str, kinds.FILE], ...], kinds.NonEmpty()]
    start_at: Annotated[str, kinds.Choice("position", ("beginning", "end"))] = "end"
    group_by: Annotated[str, kinds.TEXT] = ""
    model_name: Annotated[str, kinds.TEXT] = ""
    provider: Annotated[str, kinds.TEXT] = ""
    fields: Annotated[tuple[tuple[str, str], ...], label_kinds.Fields(CUSTOM_FIELDS)] = ()
    max_line_bytes: Annotated[int, kinds.size(1 << 10, 256 * MIB)] = 8 * MIB

    def problems(self) -> Problems:
        if self.format == "custom" and "prompt_tokens" not in dict(self.fields):
            yield "fields", "format custom needs fields with prompt_tokens; add it"
        if self.format != "custom" and self.fields:
            yield "fields", f"only format custom has fields, this one is {self.format}; remove them"


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
        if self.count > 1:
            yield "count", "this version cannot share targets between exporters yet; set 1"
        elif self.index >= self.count:
            yield "index", f"found {self.index}, expected less than shard.count ({self.count})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Section):
    REFUSED: ClassVar[Mapping[str, str]] = {
        "prices": _NOT_YET.format("price requests"),
    }

    scrape: ScrapeConfig = ScrapeConfig()
    targets: tuple[TargetGroup, ...] = ()
    requests: Annotated[tuple[RequestSource, ...], kinds.Unique("name")] = ()
    events: Annotated[tuple[EventSource, ...], kinds.Unique("target")] = ()
    outcome: OutcomeConfig = OutcomeConfig()
    limits: LimitsConfig = LimitsConfig()
    state: StateConfig = StateConfig()
    cold: ColdConfig = ColdConfig()
    shard: ShardConfig = ShardConfig()

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        if not {"targets", "requests", "events"} & given:
            yield "", NOTHING_TO_DO

    def problems(self) -> Problems:
        if not self.targets and not self.requests and not self.events:
            yield "", NOTHING_TO_DO
