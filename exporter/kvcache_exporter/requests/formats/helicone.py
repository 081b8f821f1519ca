"""Helicone's request export. The row's total shows whether prompt tokens include cached ones."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.rows import Loose, Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.values import Tokens, label, milliseconds, number

_CANCELLED = -3


class Properties(msgspec.Struct, gc=False):
    """`request_properties`, set by the caller."""

    route: Any = None


class HeliconeRow(msgspec.Struct, gc=False):
    """One request."""

    request_id: Any = None
    request_created_at: Any = None
    response_status: Any = None
    request_model: Any = None
    response_model: Any = None
    provider: Any = None
    delay_ms: Any = None
    time_to_first_token: Any = None
    prompt_tokens: Tokens = None
    prompt_cache_write_tokens: Tokens = None
    prompt_cache_read_tokens: Tokens = None
    completion_tokens: Tokens = None
    total_tokens: Tokens = None
    cache_reference_id: Any = None
    """The request whose reply was reused; zeros for none."""
    request_properties: Properties | Loose = None


def _read(row: HeliconeRow) -> Reading:
    if row.request_created_at is None and row.response_status is None:
        raise foreign("Helicone's export")
    properties = row.request_properties
    return Reading(
        prompt=_prompt(row),
        cached=row.prompt_cache_read_tokens,
        written=row.prompt_cache_write_tokens,
        output=row.completion_tokens,
        ttft=milliseconds(row.time_to_first_token),
        duration=milliseconds(row.delay_ms),
        at=row.request_created_at,
        provider=label(row.provider).lower(),
        model=row.response_model or row.request_model,
        group=properties.route if isinstance(properties, Properties) else None,
        status=row.response_status,
        request_id=row.request_id,
        skip=_skip(row),
    )


def _prompt(row: HeliconeRow) -> int | None:
    fresh, extra = (
        row.prompt_tokens,
        (row.prompt_cache_read_tokens or 0) + (row.prompt_cache_write_tokens or 0),
    )
    if fresh is None or not extra:
        return fresh
    rest = None if row.total_tokens is None else row.total_tokens - (row.completion_tokens or 0)
    if rest == fresh:
        return fresh
    if rest == fresh + extra or extra > fresh or label(row.provider).upper() == "ANTHROPIC":
        return fresh + extra
    return fresh


def _skip(row: HeliconeRow) -> str:
    reference = label(row.cache_reference_id)
    if reference.strip("0-"):
        return "response_cache"
    status = number(row.response_status)
    if status is not None and status < 0:
        return "aborted" if status == _CANCELLED else "failed"
    return ""


def _looks(sample: Mapping[str, Any]) -> bool:
    return "request_created_at" in sample and "prompt_tokens" in sample


HELICONE = RowFormat("helicone", HeliconeRow, _read, _looks)
