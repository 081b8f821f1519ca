"""The OTLP/HTTP receiver: takes the headers and body of a POST, and returns the response."""

import threading
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

from kvcache_exporter.errors import KVCacheError, StateError
from kvcache_exporter.model import Signal
from kvcache_exporter.requests.otlp import messages
from kvcache_exporter.requests.otlp.errors import MalformedError, TooManyError
from kvcache_exporter.requests.otlp.messages import Encoding
from kvcache_exporter.requests.otlp.source import Export, OtlpSource

AT_A_TIME = 8
"""Exports handled at a time; further ones are told to retry, so that no page waits for them."""
PATIENCE_SECONDS = 5.0
_RETRY_SECONDS = 2
_KINDS: dict[str, Encoding] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_STATUS = {
    "media_type": 415,
    "encoding": 415,
    "too_large": 413,
    "malformed": 400,
    # Not 429 or 408: each of them is retried by some SDKs only, 503 by all.
    "slow": 503,
    "busy": 503,
    "state": 503,
}
_RETRIED = frozenset({"slow", "busy", "state"})


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes
    retry_after: int | None = None
    """Seconds."""


class RefusalError(KVCacheError):
    """An export is refused; `reason` is one of the catalogue's OTLP_REFUSALS."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Receiver:
    """`answer` may be called by any thread; it counts under `turn`, the lock of log reading and reloading."""

    def __init__(self, source: Callable[[], OtlpSource | None], turn: threading.Lock, max_body: int) -> None:
        self._source, self._turn, self.max_body = source, turn, max_body
        self._room = threading.BoundedSemaphore(AT_A_TIME)
        self._parsing = threading.Lock()
        """Held while a body is unpacked and decoded: the objects take many times its size."""

    def answer(
        self, signal: Signal, content_type: str, content_encoding: str, body: bytes, problem: str = ""
    ) -> Answer:
        """`problem` is `too_large`, `slow` or `busy` if the body was not read."""
        kind = content_type.partition(";")[0].strip().lower()
        encoding = _KINDS.get(kind, "protobuf")
        try:
            if problem:
                raise self._refusal(problem)
            rejected = self._receive(signal, kind, content_encoding.strip().lower(), body).rejected
        except RefusalError as refusal:
            if source := self._source():
                source.refuse(refusal.reason)
            wait = _RETRY_SECONDS if refusal.reason in _RETRIED else None
            told = messages.refusal(encoding, str(refusal))
            return Answer(_STATUS[refusal.reason], _kind(encoding), told, wait)
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(rejected.items()))
        told = messages.answer(signal, encoding, rejected.total(), f"not counted: {reasons}")
        return Answer(200, _kind(encoding), told)

    def _receive(self, signal: Signal, kind: str, content_encoding: str, body: bytes) -> Export:
        if kind not in _KINDS:
            raise RefusalError("media_type", f"Content-Type must be one of {', '.join(_KINDS)}")
        if not self._room.acquire(blocking=False):
            raise self._refusal("busy")
        try:
            export = self._decode(signal, _KINDS[kind], content_encoding, body)
            self._count(export)
        finally:
            self._room.release()
        return export

    def _decode(self, signal: Signal, encoding: Encoding, content_encoding: str, body: bytes) -> Export:
        source = self._current()
        with self._parsing:
            try:
                unpacked = self._unpacked(content_encoding, body)
                return source.decode(signal, messages.read(signal, encoding, unpacked, source.wanted))
            except MalformedError as error:
                raise RefusalError("malformed", f"{error}; send an OTLP/HTTP export") from error
            except TooManyError as error:
                raise RefusalError("too_large", f"{error}; send smaller batches") from error

    def _count(self, export: Export) -> None:
        if not self._turn.acquire(timeout=PATIENCE_SECONDS):
            raise RefusalError("busy", "logs are being read; send this export again")
        try:
            source = self._current()
            if source.is_full:
                raise RefusalError("busy", "the log these spans are joined to is not read; send them again")
            source.add(export, time.time())
        except StateError as error:
            raise RefusalError("state", f"not counted yet: {error}") from error
        finally:
            self._turn.release()

    def _current(self) -> OtlpSource:
        source = self._source()
        if source is None:
            raise RefusalError("busy", "the configuration was changed; send this export again")
        return source

    def _unpacked(self, encoding: str, body: bytes) -> bytes:
        if encoding in {"", "identity"}:
            return body
        if encoding != "gzip":
            raise RefusalError("encoding", "Content-Encoding must be gzip or identity")
        inflate = zlib.decompressobj(31)
        try:
            unpacked = inflate.decompress(body, self.max_body + 1)
        except zlib.error as error:
            raise RefusalError("malformed", "the body is not gzip, as Content-Encoding says") from error
        if len(unpacked) > self.max_body:
            raise self._refusal("too_large")
        if not inflate.eof or inflate.unused_data:
            raise RefusalError("malformed", "the body is cut off, or has data after its gzip stream")
        return unpacked

    def _refusal(self, reason: str) -> RefusalError:
        messages_by_reason = {
            "too_large": f"larger than {self.max_body} bytes, packed or unpacked; "
            "send smaller batches or raise otlp.max_body_bytes",
            "slow": "the body did not come in time; send it again",
            "busy": "too many exports are under way; send this one again",
        }
        return RefusalError(reason, messages_by_reason[reason])


def _kind(encoding: Encoding) -> str:
    return next(kind for kind, name in _KINDS.items() if name == encoding)
