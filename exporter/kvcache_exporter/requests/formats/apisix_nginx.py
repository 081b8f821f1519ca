"""Access logs of APISIX's ai-proxy, and of NGINX with usage variables set by njs or Lua.

APISIX logs prompt and completion tokens but has no variable for cached ones.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.rows import Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.statuses import failure_of_status
from kvcache_exporter.requests.formats.values import Seconds, Tokens, milliseconds, seconds, token


class AccessRow(msgspec.Struct, gc=False):
    """One line; the two servers' variables side by side, most of them numbers that NGINX writes as text."""

    ts: Any = None
    time_iso8601: Any = None
    status: Any = None
    request_time: Any = None
    request_id: Any = None
    consumer_name: Any = None
    request_type: Any = None
    llm_model: Any = None
    request_llm_model: Any = None
    llm_prompt_tokens: Tokens = None
    llm_completion_tokens: Tokens = None
    llm_time_to_first_token: Any = None
    usage_prompt: Tokens = None
    usage_cached: Tokens = None
    usage_written: Tokens = None
    usage_completion: Tokens = None
    upstream_header_time: Seconds = None
    upstream_response_time: Seconds = None


_UNSET = {"llm_prompt_tokens": 0, "llm_completion_tokens": 0, "usage_prompt": 0, "usage_completion": 0,
          "usage_cached": None, "usage_written": None}  # fmt: skip
"""Values of counts whose variable is not set: NGINX logs it as empty or "-", APISIX as 0."""


def _tidy(row: AccessRow) -> None:
    for name, unset in _UNSET.items():
        value: Any = getattr(row, name)
        setattr(row, name, unset if value in ("", "-") else token(value))
    for name in ("upstream_header_time", "upstream_response_time"):
        setattr(row, name, seconds(getattr(row, name)))


def _read(row: AccessRow) -> Reading:
    if row.request_time is None and row.llm_prompt_tokens is None and row.usage_prompt is None:
        raise foreign("an access log of APISIX or NGINX")
    prompt = row.llm_prompt_tokens or row.usage_prompt or None
    reading = Reading(
        prompt=prompt,
        cached=row.usage_cached,
        written=row.usage_written,
        output=row.llm_completion_tokens or row.usage_completion or None,
        ttft=_ttft(row),
        duration=seconds(row.request_time),
        at=row.time_iso8601 if row.ts is None else row.ts,
        model=row.llm_model or row.request_llm_model,
        group=row.consumer_name,
        status=row.status,
        request_id=row.request_id,
    )
    if prompt is None and not row.request_type and not failure_of_status(row.status):
        reading.skip = "not_a_request"
    return reading


def _ttft(row: AccessRow) -> float | None:
    """Milliseconds from APISIX, or seconds to NGINX's upstream headers, which a stream sends first."""
    if row.llm_time_to_first_token is not None:
        return (milliseconds(row.llm_time_to_first_token) or None) if row.request_type != "ai_chat" else None
    header, whole = row.upstream_header_time, row.upstream_response_time
    return header if header is not None and whole is not None and header < whole else None


def _looks(sample: Mapping[str, Any]) -> bool:
    return "llm_prompt_tokens" in sample or ("usage_prompt" in sample and "request_time" in sample)


APISIX_NGINX = RowFormat("apisix_nginx", AccessRow, _read, _looks, tidy=_tidy)
