"""The running sources of request records: opens, reads and reloads them, and owns the OTLP receiver."""

import logging
import threading
import time
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from kvcache_exporter.config import Config, KafkaTopics, RequestSource
from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.joiner import JoinOptions
from kvcache_exporter.requests.kafka.options import KafkaOptions, Security
from kvcache_exporter.requests.kafka.source import KafkaSource
from kvcache_exporter.requests.options import SourceOptions
from kvcache_exporter.requests.otlp.source import OtlpSource
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.prices import Prices
from kvcache_exporter.requests.source import LogSource
from kvcache_exporter.shard import Shard
from kvcache_exporter.state import StateStore

if TYPE_CHECKING:
    from kvcache_exporter.requests.otlp.receiver import Receiver

log = logging.getLogger(__name__)

Source = LogSource | OtlpSource | KafkaSource


class RequestSources:
    """`poll`, `use` and the receiver take turns, so that they may run in different threads."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._sources: dict[Hashable, Source] = {}
        self.receiver: Receiver | None = None
        """Receives OTLP; None if no source is configured for it."""
        self.turn = threading.Lock()
        """Held while logs are read and exports are counted, so that no source is closed meanwhile."""

    @property
    def all(self) -> list[Source]:
        return list(self._sources.values())

    def poll(self) -> bool:
        """Read what is new in all sources; True if there may be more."""
        with self.turn:
            more = [self._poll(source) for source in self.all]
        return any(more)

    def close(self) -> None:
        for source in self.all:
            source.close()

    def use(self, config: Config, shard: Shard, prices: Prices | None) -> None:
        """Run the configured sources; unchanged ones keep running. Raises StateError."""
        wanted = {
            (source, _join(source, config), config.outcome, config.limits): source
            for source in config.requests
            # The consumer group shares messages among exporters.
            if source.kafka or shard.owns(_owner(source))
        }
        with self.turn:
            opened = {
                key: self._open(source, config) for key, source in wanted.items() if key not in self._sources
            }
            for key in self._sources.keys() - wanted.keys():
                self._sources[key].close()
            self._sources = {key: self._sources.get(key) or opened[key] for key in wanted}
            self._use_receiver(wanted.values())
            for source in self.all:
                source.ledger.prices = prices

    def _open(self, source: RequestSource, config: Config) -> Source:
        options = _source_options(source, config)
        if source.kafka:
            return KafkaSource(options, _kafka_options(source.kafka), get_format(source.format), self._store)
        if source.otlp is None:
            return LogSource(options, get_format(source.format), self._store)
        partner = source.otlp.join
        return OtlpSource(options, self._store, lambda: self._log(partner) if partner else None)

    def _log(self, name: str) -> LogSource | KafkaSource | None:
        logs = (source for source in self.all if not isinstance(source, OtlpSource))
        return next((source for source in logs if source.name == name), None)

    def otlp(self) -> OtlpSource | None:
        return next((source for source in self.all if isinstance(source, OtlpSource)), None)

    def _use_receiver(self, wanted: Iterable[RequestSource]) -> None:
        """Imports the receiver late: protobuf and the OTLP messages take 50 ms to load."""
        sizes = [source.otlp.max_body_bytes for source in wanted if source.otlp]
        if not sizes:
            self.receiver = None
            return
        from kvcache_exporter.requests.otlp.receiver import Receiver  # noqa: PLC0415

        if self.receiver is None or self.receiver.max_body != sizes[0]:
            self.receiver = Receiver(self.otlp, self.turn, sizes[0])

    def _poll(self, source: Source) -> bool:
        try:
            return source.poll(time.time())
        except KVCacheError as error:
            # Nothing is lost: what was not committed is not published either, and is committed next time.
            log.error("source %s: %s", source.name, error)  # noqa: TRY400
        except Exception:
            log.exception("source %s: unexpected fault; please report it", source.name)
        return False


def _owner(source: RequestSource) -> str:
    """The name that decides the shard: spans that are joined to a log go where the log is read."""
    return (source.otlp.join if source.otlp else None) or source.name


def _join(source: RequestSource, config: Config) -> JoinOptions | None:
    """The options for joining spans to this log; None if none are joined."""
    for other in config.requests:
        if other.otlp and other.otlp.join == source.name:
            return JoinOptions(other.otlp.join_window, other.otlp.join_requests)
    return None


def _kafka_options(kafka: KafkaTopics) -> KafkaOptions:
    security, sasl = kafka.security, kafka.security.sasl
    return KafkaOptions(
        brokers=kafka.brokers,
        topics=kafka.all_topics,
        group=kafka.group,
        session_seconds=kafka.session_timeout,
        security=Security(
            protocol=security.protocol,
            ca_file=security.ca_file,
            cert_file=security.cert_file,
            key_file=security.key_file,
            mechanism=sasl.mechanism if sasl else None,
            username=sasl.username if sasl else None,
            password_file=sasl.password_file if sasl else None,
        ),
    )


def _source_options(source: RequestSource, config: Config) -> SourceOptions:
    start_at = source.kafka.start_at if source.kafka else source.start_at
    return SourceOptions(
        name=source.name,
        paths=source.paths,
        start_at="beginning" if start_at == "beginning" else "end",
        decoding=DecoderOptions(
            group_by=source.group_by,
            model_name=source.model_name,
            provider=source.provider,
            granule=source.granule or 0,
            fields=dict(source.fields),
        ),
        full_hit=FullHit(config.outcome.full_hit.fraction, config.outcome.full_hit.max_uncached_tokens),
        length_bands=source.length_bands,
        models=config.limits.models_per_source,
        groups=config.limits.groups_per_source,
        max_line_bytes=source.max_line_bytes,
        join=_join(source, config),
    )
