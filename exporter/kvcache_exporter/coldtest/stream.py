"""Reads one streamed chat completion: the time of its first token, and the usage at its end."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.requests.formats.chat_usage import ChatUsage, chat_counts

MAX_REPLY_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 20


class RequestError(KVCacheError):
    """A request got no complete reply; `reason` is short and never quotes the server."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Reply(NamedTuple):
    """What the client saw of one request; counts that the usage lacks are None."""

    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    ttft: float | None
    """Seconds from sending to the first token of text; None for a reply without text."""
    duration: float


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    """Engines put a model's reasoning, whose tokens come first, into one of the last two."""


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: ChatUsage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


def read_reply(read: Callable[[], bytes], started: float) -> Reply:
    """`read` returns bytes as they arrive, b"" at the end; `started` is a `time.perf_counter` value."""
    ttft, usage = None, None
    for data in _events(read):
        if data == b"[DONE]":
            counts = chat_counts(usage) if usage else (None,) * 5
            return Reply(counts[0], counts[1], counts[3], ttft, time.perf_counter() - started)
        chunk = _decoded(data)
        if ttft is None and any(map(_has_text, chunk.choices or ())):
            ttft = time.perf_counter() - started
        usage = chunk.usage or usage
    raise RequestError("cut off")


def _decoded(data: bytes) -> _Chunk:
    try:
        chunk = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RequestError("malformed stream") from None
    if chunk.error:
        raise RequestError("error in the stream")
    return chunk


def _has_text(choice: _Choice) -> bool:
    """False for the first chunk, which only opens the assistant's turn."""
    delta = choice.delta
    return delta is not None and bool(delta.content or delta.reasoning_content or delta.reasoning)


def _events(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Contents of the `data:` fields of a stream of server-sent events."""
    rest, size = b"", 0
    while piece := read():
        size += len(piece)
        *lines, rest = (rest + piece).split(b"\n")
        if size > MAX_REPLY_BYTES or len(rest) > MAX_LINE_BYTES:
            raise RequestError("reply too large")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
