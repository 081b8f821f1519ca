"""Fireworks usage: OpenAI's shape; counts and times also in `perf_metrics` or in logged response headers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.chat_usage import (
    ChatUsage,
    chat_counts,
    from_provider,
    has_chat_usage,
)
from kvcache_exporter.requests.formats.envelope import Envelope, EnvelopeFormat, measured, row_of
from kvcache_exporter.requests.formats.values import Tokens, seconds

_PREFIX = "fireworks-"


class PerfMetrics(msgspec.Struct, gc=False):
    """`perf_metrics` of the body, or the reply's headers without the prefix of their names."""

    prompt: Tokens = msgspec.field(default=None, name="prompt-tokens")
    cached: Tokens = msgspec.field(default=None, name="cached-prompt-tokens")
    ttft: Any = msgspec.field(default=None, name="server-time-to-first-token")
    duration: Any = msgspec.field(default=None, name="server-processing-time")


class FireworksRow(Envelope, gc=False):
    """One line."""

    perf_metrics: PerfMetrics | list[Any] | str | float | bool | None = None
    response_headers: dict[str, Any] | list[Any] | str | float | bool | None = None


class FireworksUsage(ChatUsage, gc=False):
    """`usage`, with a field for the count that is outside of it."""

    hits: Tokens = msgspec.field(default=None, name="cached_tokens")  # type: ignore[misc]


def _unfold(row: FireworksRow) -> FireworksRow:
    headers = row.response_headers
    for told in (row.perf_metrics, _metrics(headers) if isinstance(headers, dict) else None):
        if not isinstance(told, PerfMetrics):
            continue
        measured(row, seconds(told.ttft), seconds(told.duration))
        if told.prompt is not None and not isinstance(row.usage, msgspec.Struct):
            row.usage = FireworksUsage(prompt_tokens=told.prompt)
        if isinstance(row.usage, FireworksUsage) and row.usage.hits is None:
            row.usage.hits = told.cached
    return row


def _metrics(headers: Mapping[str, Any]) -> PerfMetrics:
    """Header names have any case. Raises msgspec's errors for invalid counts."""
    told = {name.lower().removeprefix(_PREFIX): value for name, value in headers.items()}
    return msgspec.convert(told, PerfMetrics, strict=False)


def _looks(sample: Mapping[str, Any]) -> bool:
    model, metrics, headers = map(sample.get, ("model", "perf_metrics", "response_headers"))
    if isinstance(headers, dict) and any(name.lower() == f"{_PREFIX}prompt-tokens" for name in headers):
        return True
    return has_chat_usage(sample) and (
        from_provider(sample, "fireworks", "fireworks_ai")
        or (isinstance(model, str) and model.startswith("accounts/fireworks/"))
        or (isinstance(metrics, dict) and "cached-prompt-tokens" in metrics)
    )


FIREWORKS = EnvelopeFormat(
    name="fireworks",
    row=row_of(FireworksUsage, FireworksRow),
    usage=FireworksUsage,
    counts=chat_counts,
    looks=_looks,
    provider="fireworks",
    unfold=_unfold,
)
