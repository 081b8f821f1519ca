"""Fireworks usage: OpenAI's shape; counts and times also in `perf_metrics` or in logged response headers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import ChatUsage, chat_format, from_provider
from kvcache_exporter.requests.formats.envelope import Envelope, measured
from kvcache_exporter.requests.formats.values import Tokens, seconds


class PerfMetrics(msgspec.Struct, gc=False):
    """`perf_metrics` of the body."""

    cached: Tokens = msgspec.field(default=None, name="cached-prompt-tokens")
    ttft: Any = msgspec.field(default=None, name="server-time-to-first-token")
    duration: Any = msgspec.field(default=None, name="server-processing-time")


class Headers(msgspec.Struct, gc=False):
    """`response_headers`: the same values, all of them strings."""

    cached: Tokens = msgspec.field(default=None, name="fireworks-cached-prompt-tokens")
    ttft: Any = msgspec.field(default=None, name="fireworks-server-time-to-first-token")
    duration: Any = msgspec.field(default=None, name="fireworks-server-processing-time")


class FireworksRow(Envelope, gc=False):
    """One line."""

    perf_metrics: PerfMetrics | list[Any] | str | float | bool | None = None
    response_headers: Headers | list[Any] | str | float | bool | None = None


class FireworksUsage(ChatUsage, gc=False):
    """`usage`, with a place for the count that stands outside of it."""

    hits: Tokens = msgspec.field(default=None, name="cached_tokens")  # type: ignore[misc]


def _unfold(row: FireworksRow) -> FireworksRow:
    for extra in (row.perf_metrics, row.response_headers):
        if isinstance(extra, PerfMetrics | Headers):
            measured(row, seconds(extra.ttft), seconds(extra.duration))
            if isinstance(row.usage, FireworksUsage) and row.usage.hits is None:
                row.usage.hits = extra.cached
    return row


def _looks(sample: Mapping[str, Any]) -> bool:
    model, metrics = sample.get("model"), sample.get("perf_metrics")
    return (
        from_provider(sample, "fireworks", "fireworks_ai")
        or (isinstance(model, str) and model.startswith("accounts/fireworks/"))
        or (isinstance(metrics, dict) and "cached-prompt-tokens" in metrics)
    )


FIREWORKS = chat_format("fireworks", _looks, usage=FireworksUsage, envelope=FireworksRow, unfold=_unfold)
