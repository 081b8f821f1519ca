"""SGLang's --log-requests with --log-requests-format json, from 0.5.23 behind a `[time] ` prefix.

Also bodies of its /generate, which have the same `meta_info`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.sglang_request import SglangDecoder, SglangRequest
from kvcache_exporter.requests.formats.timestamps import timestamp


class LogReply(msgspec.Struct, gc=False):
    """`out`; from level 2 on it also contains the text, which is not read."""

    meta_info: SglangRequest | list[Any] | str | float | bool | None = None


class LogRow(msgspec.Struct, gc=False):
    """One event, or one body."""

    event: Any = None
    timestamp: Any = None
    """Local time of the server without a zone; only used if the reply has no time."""
    out: LogReply | list[Any] | str | float | bool | None = None
    meta_info: SglangRequest | list[Any] | str | float | bool | None = None


class _SglangLogDecoder(SglangDecoder):
    def _take(self, row: LogRow, line: bytes, entries: list[Entry]) -> None:
        reply = row.out.meta_info if isinstance(row.out, LogReply) else row.meta_info
        if isinstance(reply, SglangRequest):
            entries.append(self._entry(reply, line, timestamp(row.timestamp)))
        elif isinstance(row.event, str) and row.event.startswith("request.received"):
            entries.append(Skipped("not_a_request"))
        else:
            raise RecordError("no_usage", "the line is not a finished request: it has no meta_info")


class SglangRequestLog:
    """The format."""

    name = "sglang_request_log"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample is an event of a request or a body."""
        event, reply = sample.get("event"), sample.get("meta_info")
        is_event = isinstance(event, str) and event.startswith("request.") and "rid" in sample
        return is_event or (isinstance(reply, dict) and "prompt_tokens" in reply)

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return _SglangLogDecoder(LogRow, "obj.sampling_params.n", options)


SGLANG_REQUEST_LOG = SglangRequestLog()
