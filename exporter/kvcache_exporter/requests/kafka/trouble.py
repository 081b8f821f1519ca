"""Problems between a source and its brokers: counted by reason, logged once, shown while they last."""

import logging
from collections import Counter
from typing import TYPE_CHECKING

from kvcache_exporter.requests.kafka.errors import KafkaFailedError
from kvcache_exporter.requests.kafka.reasons import is_connected, reason_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger(__name__)


class Trouble:
    """Any thread may read `problems`; everything else is for the source's thread."""

    def __init__(self, source: str) -> None:
        self.errors: Counter[str] = Counter()
        """Counts by the catalogue's BROKER_ERROR_REASONS, since the start."""
        self._source = source
        self._connection = ""
        self._failure = ""
        self._topics: dict[str, str] = {}
        self._share = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong at the moment; empty if all is well."""
        found = (self._connection, self._failure, self._share, *dict(self._topics).values())
        return tuple(text for text in found if text)

    def note(self, error: Exception) -> None:
        """Note that this error ended a session."""
        if isinstance(error, KafkaFailedError):
            self.errors[error.reason] += 1
        if str(error) != self._failure:
            log.warning("source %s: %s", self._source, error)
        self._failure = str(error)

    def on_error(self, error: "KafkaError") -> None:
        """Note an error after which the client keeps trying."""
        reason = reason_of(error)
        self.errors[reason] += 1
        text = f"{reason}: {error.str()}"
        if reason in ("connection", "authentication"):
            self._say(text)
        else:
            log.warning("source %s: %s", self._source, text)

    def on_fenced(self, error: "KafkaError") -> None:
        """Note that the group refused a claim because it is rebalancing."""
        self.errors["fenced"] += 1
        log.info(
            "source %s: a claim came too late, its messages are counted again: %s", self._source, error.str()
        )

    def on_topic(self, topic: str, error: "KafkaError") -> None:
        """Note that a topic cannot be read."""
        reason = reason_of(error)
        self.errors[reason] += 1
        text = f"topic {topic}: {error.str()}"
        if self._topics.get(topic) != text:
            log.warning("source %s: %s", self._source, text)
        self._topics[topic] = text

    def on_statistics(self, statistics: str) -> None:
        """Log when the connection to all brokers is lost or restored, even without messages."""
        if is_connected(statistics):
            if self._connection:
                log.info("source %s: connected to a broker again", self._source)
            self._connection = ""
        elif not self._connection:
            self._say("connection: no broker answers")

    def on_assigned(self) -> None:
        """The group assigned partitions, so brokers, group and topics are all right."""
        self._connection = self._failure = ""
        self._topics.clear()

    def on_share(self, given: int, there_are: int) -> None:
        """A source that spans are joined to needs all messages here."""
        text = (
            f"has {given} of {there_are} partitions, so spans of the others' requests find no record here; "
            "let one exporter alone have this group"
        )
        if given < there_are and self._share != text:
            log.warning("source %s: %s", self._source, text)
        self._share = text if given < there_are else ""

    def _say(self, text: str) -> None:
        if not self._connection:
            log.warning("source %s: %s", self._source, text)
        self._connection = text
