"""Maps the Kafka client's errors to reasons, and reads the connection's state from its statistics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from kvcache_exporter.requests.kafka.errors import KafkaFailedError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_REASONS: Mapping[str, tuple[str, ...]] = {
    "authentication": ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"),
    "authorization": (
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    ),
    "connection": (
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_SSL",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_WAIT_COORD",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NETWORK_EXCEPTION",
        "REQUEST_TIMED_OUT",
    ),
    "fenced": ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"),
    "topic": ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"),
}
_REASON_OF = {name: reason for reason, names in _REASONS.items() for name in names}


def reason_of(error: "KafkaError") -> str:
    """A value of the catalogue's BROKER_ERROR_REASONS."""
    return _REASON_OF.get(error.name(), "other")


class _Broker(msgspec.Struct):
    state: str = ""
    nodeid: int = -1


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = {}


_decode_statistics = msgspec.json.Decoder(_Statistics).decode


def is_connected(statistics: str) -> bool:
    """Whether the client is connected to a broker."""
    return any(broker.state in ("UP", "UPDATE") for broker in _decode_statistics(statistics).brokers.values())


def failed(error: "KafkaError", what: str) -> KafkaFailedError:
    """The exception with which this error ends a session."""
    return KafkaFailedError(reason_of(error), f"{what}: {error.str()}")
