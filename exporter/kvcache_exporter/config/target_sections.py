"""The sections of the configuration for targets: which engines to scrape, and with which credentials."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kvcache_exporter.config import kinds
from kvcache_exporter.config import labels as label_kinds
from kvcache_exporter.config.kubernetes_section import KubernetesDiscovery
from kvcache_exporter.config.section import (
    MOVE_TO_FILE,
    Problems,
    Section,
    certificate_conflicts,
    choice_conflicts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAuth(Section):
    REFUSED: ClassVar[Mapping[str, str]] = {"password": MOVE_TO_FILE.format("password_file")}

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
        yield from certificate_conflicts(given)

    def problems(self) -> Problems:
        if self.insecure_skip_verify and self.ca_file:
            yield "insecure_skip_verify", "without verification ca_file has no effect; remove one of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Credentials and TLS settings for the targets of a group."""

    bearer_token_file: str | None = None
    basic_auth: BasicAuth | None = None
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(Section):
    """How to reach targets: the keys that groups of targets and modules of `probe` share."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "bearer_token": MOVE_TO_FILE.format("bearer_token_file"),
        "password": MOVE_TO_FILE.format("basic_auth.password_file"),
    }

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
        if "bearer_token_file" in given and "basic_auth" in given:
            yield (
                "bearer_token_file",
                "a request can carry only one of bearer_token_file and basic_auth; remove one",
            )

    def problems(self) -> Problems:
        if self.tls and self.scheme == "http":
            yield "tls", "the scheme is http, where tls has no effect; set scheme to https or remove tls"


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
class TargetGroup(Access):
    SOURCES: ClassVar[tuple[str, ...]] = ("static", "file", "dns", "kubernetes")

    engine: Annotated[str, kinds.Choice("engine")] = "auto"
    static: Annotated[tuple[Annotated[str, kinds.AddressText()], ...], kinds.NonEmpty()] = ()
    file: FileDiscovery | None = None
    dns: DnsDiscovery | None = None
    kubernetes: KubernetesDiscovery | None = None
    labels: Annotated[tuple[tuple[str, str], ...], label_kinds.Labels()] = ()
    request_metrics: Annotated[bool, kinds.BOOLEAN] = True
    ask_version: Annotated[bool, kinds.BOOLEAN] = True

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        yield from choice_conflicts(given, cls.SOURCES)
        yield from Access.conflicts(given)
