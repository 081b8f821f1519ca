"""Sends a load with a fixed number of threads and keeps the answers."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcache_exporter.coldtest.endpoint import Client, Endpoint
from kvcache_exporter.coldtest.load import Load, Request
from kvcache_exporter.coldtest.stream import Reply, RequestError

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""Seconds that requests in flight may still take after an interrupt."""


class Answer(NamedTuple):
    """The result of one request."""

    number: int
    kind: str
    finished: float
    """Seconds since the phase began."""
    reply: Reply | None
    error: str = ""
    """Why there is no reply."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a load is sent: to which model, how fast, how long."""

    model: str
    concurrency: int
    max_tokens: int
    duration: float
    """Seconds after which no further request is sent."""
    timeout: float
    """Seconds for one request."""


@dataclass(slots=True)
class Run:
    """The results of one phase."""

    answers: list[Answer] = field(default_factory=list)
    seconds: float = 0.0
    planned: int = 0
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        return len(self.answers) == self.planned


class Driver:
    """Runs one phase; to be used once."""

    def __init__(self, endpoint: Endpoint, pace: Pace, load: Load) -> None:
        self._endpoint = endpoint
        self._pace = pace
        self._load = load
        self._changed = threading.Condition()
        self._next = 0
        self._answered: set[int] = set()
        self._stopping = False
        self._closed = False
        self._started = time.monotonic()
        self._run = Run(planned=len(load))

    def drive(self, progress: Callable[[int, int], None]) -> Run:
        """Returns once all is answered or the time is over; after Ctrl-C, with the answers so far."""
        # Daemon threads, so that requests left waiting after an interrupt do not keep the program alive.
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(self._pace.concurrency)]
        try:
            for worker in workers:
                worker.start()
            self._wait(workers, float("inf"), progress)
        except KeyboardInterrupt:
            self._run.interrupted = True
            self._stop()
            self._wait(workers, GRACE_SECONDS, progress)
        with self._changed:
            self._closed = True
            self._run.seconds = max((answer.finished for answer in self._run.answers), default=0.0)
            return self._run

    def _wait(
        self, workers: list[threading.Thread], seconds: float, progress: Callable[[int, int], None]
    ) -> None:
        end = time.monotonic() + seconds
        while any(worker.is_alive() for worker in workers) and time.monotonic() < end:
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)
                done = len(self._run.answers)
            progress(done, self._run.planned)

    def _work(self) -> None:
        client = Client(self._endpoint)
        # The connection is open before the first request is timed.
        client.status("/v1/models")
        try:
            while (number := self._take()) is not None:
                request = self._load.request(number)
                if not self._wait_for(request.after):
                    return
                self._record(self._answer(client, number, request))
        finally:
            client.close()

    def _take(self) -> int | None:
        with self._changed:
            late = time.monotonic() - self._started > self._pace.duration
            if self._stopping or late or self._next >= len(self._load):
                return None
            self._next += 1
            return self._next - 1

    def _wait_for(self, number: int | None) -> bool:
        """Wait until a request is answered, which another thread is sending; False if the run stops."""
        with self._changed:
            self._changed.wait_for(lambda: number is None or number in self._answered or self._stopping)
            return not self._stopping

    def _answer(self, client: Client, number: int, request: Request) -> Answer:
        reply, error = None, ""
        try:
            reply = client.ask(self._pace.model, request.messages, self._pace.max_tokens, self._pace.timeout)
        except RequestError as failure:
            error = failure.reason
        except Exception as fault:  # noqa: BLE001 -- a dead thread's answer would be awaited for ever
            # Its words are left out: they may quote a prompt.
            log.warning("coldtest: request %d: %s", number, type(fault).__name__)
            error = "internal error"
        return Answer(number, request.kind, time.monotonic() - self._started, reply, error)

    def _record(self, answer: Answer) -> None:
        with self._changed:
            if not self._closed:
                self._run.answers.append(answer)
            self._answered.add(answer.number)
            self._changed.notify_all()

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
