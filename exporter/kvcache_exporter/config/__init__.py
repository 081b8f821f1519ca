"""The configuration file: its schema, and errors with position, what was found and what was expected."""

from kvcache_exporter.config.address import Address, is_url_path, parse_address, split_server_url
from kvcache_exporter.config.kafka_section import KafkaSasl, KafkaSecurity, KafkaTopics
from kvcache_exporter.config.kubernetes_section import KubernetesDiscovery, port_problem
from kvcache_exporter.config.labels import label_name_problem
from kvcache_exporter.config.load import load_config
from kvcache_exporter.config.mask import masked
from kvcache_exporter.config.probe_section import AllowEntry, ProbeConfig, ProbeModule
from kvcache_exporter.config.schema import (
    Config,
    FullHitConfig,
    LimitsConfig,
    OutcomeConfig,
    PricesConfig,
    ScrapeConfig,
    ShardConfig,
    StateConfig,
)
from kvcache_exporter.config.source_sections import EventSource, RequestSource
from kvcache_exporter.config.target_sections import (
    BasicAuth,
    DnsDiscovery,
    FileDiscovery,
    HttpSettings,
    TargetGroup,
    TlsSettings,
)

__all__ = [
    "Address",
    "AllowEntry",
    "BasicAuth",
    "Config",
    "DnsDiscovery",
    "EventSource",
    "FileDiscovery",
    "FullHitConfig",
    "HttpSettings",
    "KafkaSasl",
    "KafkaSecurity",
    "KafkaTopics",
    "KubernetesDiscovery",
    "LimitsConfig",
    "OutcomeConfig",
    "PricesConfig",
    "ProbeConfig",
    "ProbeModule",
    "RequestSource",
    "ScrapeConfig",
    "ShardConfig",
    "StateConfig",
    "TargetGroup",
    "TlsSettings",
    "is_url_path",
    "label_name_problem",
    "load_config",
    "masked",
    "parse_address",
    "port_problem",
    "split_server_url",
]
