"""The section of the configuration for usage logs in Kafka."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from kvcache_exporter.config import kinds
from kvcache_exporter.config.section import (
    MOVE_TO_FILE,
    Problems,
    Section,
    certificate_conflicts,
    choice_conflicts,
)

_BROKER = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][\w.-]{0,252}):(\d{1,5})", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def _broker(text: str) -> str | None:
    match = _BROKER.fullmatch(text)
    return text if match and 1 <= int(match[1]) <= 65535 else None


def _topic(text: str) -> str | None:
    return text if _TOPIC.fullmatch(text) and text not in (".", "..") else None


_BROKER_KIND = kinds.Scalar("broker", "a broker such as kafka-0.kafka:9092", _broker)
_TOPIC_KIND = kinds.Scalar("topic", "the name of a topic: letters, digits, dots, dashes, underscores", _topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSasl(Section):
    REFUSED: ClassVar[Mapping[str, str]] = {"password": MOVE_TO_FILE.format("password_file")}

    mechanism: Annotated[str, kinds.Choice("SASL mechanism", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))] = (
        "SCRAM-SHA-512"
    )
    username: Annotated[str, kinds.NAME]
    password_file: Annotated[str, kinds.SECRET_FILE]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity(Section):
    protocol: Annotated[
        str, kinds.Choice("security protocol", ("plaintext", "ssl", "sasl_ssl", "sasl_plaintext"))
    ]
    ca_file: Annotated[str | None, kinds.SECRET_FILE] = None
    cert_file: Annotated[str | None, kinds.SECRET_FILE] = None
    key_file: Annotated[str | None, kinds.SECRET_FILE] = None
    sasl: KafkaSasl | None = None

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        yield from certificate_conflicts(given)

    def problems(self) -> Problems:
        if not self.protocol.endswith("ssl"):
            for key in ("ca_file", "cert_file", "key_file"):
                if getattr(self, key):
                    yield key, f"protocol {self.protocol} uses no certificates; use ssl or sasl_ssl"
        if self.protocol.startswith("sasl") and self.sasl is None:
            yield "protocol", f"{self.protocol} needs a user; add sasl"
        if self.sasl and not self.protocol.startswith("sasl"):
            yield "sasl", f"protocol {self.protocol} has no users; use sasl_ssl"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopics(Section):
    brokers: Annotated[tuple[Annotated[str, _BROKER_KIND], ...], kinds.NonEmpty()]
    topic: Annotated[str | None, _TOPIC_KIND] = None
    topics: Annotated[tuple[Annotated[str, _TOPIC_KIND], ...], kinds.NonEmpty()] = ()
    group: Annotated[str, kinds.NAME] = "kvcache-exporter"
    start_at: Annotated[str, kinds.Choice("position", ("beginning", "end"))] = "end"
    session_timeout: Annotated[float, kinds.duration(6.0, 1800.0)] = 45.0
    security: KafkaSecurity = KafkaSecurity(protocol="plaintext")

    @classmethod
    def conflicts(cls, given: frozenset[str]) -> Problems:
        yield from choice_conflicts(given, ("topic", "topics"))

    @property
    def all_topics(self) -> tuple[str, ...]:
        """Each once, in the order of the file."""
        return tuple(dict.fromkeys(self.topics or (self.topic or "",)))
