"""The options of a Kafka source; importing this needs no Kafka client."""

import importlib.util
from dataclasses import dataclass

NOT_INSTALLED = (
    "the Kafka client is not installed; run pip install 'confluent-kafka>=2.6' beside the exporter"
)


def is_installed() -> bool:
    return importlib.util.find_spec("confluent_kafka") is not None


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect to the brokers; secrets are read from files."""

    protocol: str = "plaintext"
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    mechanism: str | None = None
    username: str | None = None
    password_file: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        named = (self.ca_file, self.cert_file, self.key_file, self.password_file)
        return tuple(file for file in named if file is not None)


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Brokers, topics, and how to be a member of the group."""

    brokers: tuple[str, ...]
    topics: tuple[str, ...]
    group: str = "kvcache-exporter"
    session_seconds: float = 45.0
    """After this time without a heartbeat, the group assigns an exporter's partitions to others."""
    security: Security = Security()
