"""The Kafka client and its settings."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from kvcache_exporter.requests.kafka.errors import KafkaFailedError
from kvcache_exporter.requests.kafka.options import KafkaOptions, Security

log = logging.getLogger(__name__)

_QUEUE_KIB = 16 << 10
_TOPIC_SECONDS = 10
_STATISTICS_SECONDS = 2


def stamps(security: Security) -> tuple[tuple[int, int], ...]:
    """Values that change with the files of `security`; raises KafkaFailedError if one is missing."""
    try:
        found = [Path(file).stat() for file in security.files]
    except OSError as error:
        raise KafkaFailedError("authentication", f"cannot read {error.filename}: {error.strerror}") from None
    return tuple((status.st_mtime_ns, status.st_ino) for status in found)


def connect(
    options: KafkaOptions, on_error: Callable[[KafkaError], None], on_statistics: Callable[[str], None]
) -> Consumer:
    """A client that has not joined its group yet; raises KafkaFailedError for unusable settings."""
    settings = {**_settings(options), "error_cb": on_error, "stats_cb": on_statistics}
    try:
        return Consumer(settings, logger=log)
    except KafkaException as error:
        raise KafkaFailedError("other", f"the Kafka client cannot start: {error.args[0].str()}") from None


def _settings(options: KafkaOptions) -> dict[str, Any]:
    session = round(options.session_seconds * 1000)
    return {
        "bootstrap.servers": ",".join(options.brokers),
        "group.id": options.group,
        "client.id": "kvcache-exporter",
        "session.timeout.ms": session,
        "heartbeat.interval.ms": min(3000, session // 3),
        # Every rebalance assigns all partitions again, so that each owner checks where to resume.
        "partition.assignment.strategy": "roundrobin",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": _TOPIC_SECONDS * 1000,
        "queued.max.messages.kbytes": _QUEUE_KIB,
        "statistics.interval.ms": _STATISTICS_SECONDS * 1000,
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 5000,
        # Connection failures also go to `on_error`, which logs them once instead of at every attempt.
        "log_level": 2,
        **_security(options.security),
    }


def _security(security: Security) -> dict[str, str]:
    values = {
        "security.protocol": security.protocol,
        "ssl.ca.location": security.ca_file,
        "ssl.certificate.location": security.cert_file,
        "ssl.key.location": security.key_file,
        "sasl.mechanisms": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": _secret(security.password_file) if security.password_file else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _secret(file: str) -> str:
    try:
        secret = Path(file).read_text("utf-8").strip()
    except OSError as error:
        raise KafkaFailedError("authentication", f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KafkaFailedError("authentication", f"{file} is not UTF-8") from None
    if not secret:
        raise KafkaFailedError("authentication", f"{file} is empty; write the password to it")
    return secret
