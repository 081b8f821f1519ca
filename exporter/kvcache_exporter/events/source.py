"""One configured source of KV events: a thread that reads an engine's publishers, one per rank."""

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import zmq

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.events.ledger import RankLedger
from kvcache_exporter.events.replay import Replay
from kvcache_exporter.events.sockets import shared_context
from kvcache_exporter.events.subscribe import Stream, Subscription
from kvcache_exporter.exposition import Chunk, Renderer
from kvcache_exporter.model import Sample

log = logging.getLogger(__name__)

_PUBLISH_SECONDS = 1.0
_POLL_MILLISECONDS = 500
_RETRY_SECONDS = 1.0
_FEWEST_BLOCKS = 1_000
"""Blocks followed per rank at least, however many ranks share the limit."""
_MESSAGES_PER_TURN = 200
"""Messages read from one rank before the others get a turn."""


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The configuration of one source."""

    target: str
    endpoint: str
    replay: str | None = None
    topic: str = ""
    bind: bool = False
    ranks: int = 1
    model_name: str = ""
    max_blocks: int = 1_000_000


class EventSource:
    """Reads in its own thread between `start` and `stop`; any thread may read `block`."""

    def __init__(self, options: EventOptions) -> None:
        self.name = options.target
        self.samples: list[Sample] = []
        """What was last published."""
        self.block: Mapping[Metric, Chunk] = {}
        self.problem = ""
        """Why it cannot listen now."""
        self.options = options
        ranks = range(options.ranks)
        limit = max(options.max_blocks // options.ranks, _FEWEST_BLOCKS)
        self.ledgers = [RankLedger(limit) for _ in ranks]
        self._subscriptions = [self._subscription(rank) for rank in ranks]
        self._renderer = Renderer()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events {self.name}", daemon=True)
        self.publish()

    @property
    def cleared(self) -> int:
        """How often the engine emptied its cache; every rank reports it."""
        return max(ledger.events["cleared"] for ledger in self.ledgers)

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """Wait until a stopped source has closed its sockets."""
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _subscription(self, rank: int) -> Subscription:
        options, context = self.options, shared_context()
        replay = Replay(context, options.replay and endpoint_of(options.replay, rank))
        stream = Stream(replay, self.ledgers[rank])
        endpoint = endpoint_of(options.endpoint, rank)
        return Subscription(context, endpoint, options.topic, stream, bind=options.bind)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except (zmq.ZMQError, OSError) as error:
                self._report(f"{error}; tried again every second; correct the endpoint or free its port")
            except Exception:
                log.exception("events of %s: unexpected fault; please report it", self.name)
            finally:
                for subscription in self._subscriptions:
                    subscription.close()
            self._stop.wait(_RETRY_SECONDS)

    def _read(self) -> None:
        poller = zmq.Poller()
        for subscription in self._subscriptions:
            poller.register(subscription.open(), zmq.POLLIN)
        self.problem = ""
        published, changed = time.monotonic(), False
        while not self._stop.is_set():
            poller.poll(_POLL_MILLISECONDS)
            for subscription in self._subscriptions:
                changed |= self._receive(subscription, poller)
            if changed and time.monotonic() - published >= _PUBLISH_SECONDS:
                self.publish()
                published, changed = time.monotonic(), False

    def _receive(self, subscription: Subscription, poller: zmq.Poller) -> bool:
        """Whether a message was received."""
        taken = subscription.receive(_MESSAGES_PER_TURN)
        if taken < _MESSAGES_PER_TURN and subscription.ended():
            poller.unregister(subscription.close())
            poller.register(subscription.open(), zmq.POLLIN)
        return taken > 0

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("events of %s at %s: %s", self.name, self.options.endpoint, problem)
        self.problem = problem

    def publish(self) -> None:
        """Show what was counted so far."""
        self.samples = list(self._samples())
        self.block = self._renderer.block(self.samples)

    def _samples(self) -> Iterator[Sample]:
        for kind in c.EVENT_KINDS:
            total = sum(ledger.events[kind] for ledger in self.ledgers)
            yield Sample(c.EVENTS, (self.name, kind), float(total))
        yield Sample(c.EVENTS_LOST, (self.name,), float(sum(ledger.lost for ledger in self.ledgers)))
        for rank, ledger in enumerate(self.ledgers):
            label = str(rank) if self.options.ranks > 1 else ""
            yield from ledger.samples((self.name, "", self.options.model_name, label))


def endpoint_of(endpoint: str, rank: int) -> str:
    """Engines add the data-parallel rank to the port."""
    match = re.fullmatch(r"(tcp://.+:)(\d+)", endpoint)
    return f"{match[1]}{int(match[2]) + rank}" if match else endpoint
