"""Reasons for ending a session with the brokers."""

from kvcache_exporter.errors import KVCacheError


class KafkaFailedError(KVCacheError):
    """The brokers cannot be used as configured; `reason` is one of the catalogue's BROKER_ERROR_REASONS."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RejoinError(KVCacheError):
    """The session must be restarted, although nothing failed."""
