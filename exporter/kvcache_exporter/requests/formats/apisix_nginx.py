"""Access logs of APISIX's ai-proxy, and of NGINX with usage variables set by njs or Lua.

APISIX logs prompt and completion tokens but has no variable for cached ones.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.rows import Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.statuses import failure_of_status
from kvcache_exporter.requests.formats.values import milliseconds, seconds, token


class AccessRow(msgspec.Struct, gc=False):
    """One line; the two servers' variables side by side."""

    ts: Any = None
    time_iso8601: Any = None
    status: Any = None
    request_time: Any = None
    request_id: Any = None
    consumer_name: Any = None
    request_type: Any = None
    llm_model: Any = None
    request_llm_model: Any = None
    llm_prompt_tokens: Any = None
    llm_completion_tokens: Any = None
    llm_time_to_first_token: Any = None
    usage_prompt: Any = None
    usage_cached: Any = None
    usage_written: Any = None
    usage_completion: Any = None
    upstream_header_time: Any = None
    upstream_response_time: Any = None


def _read(row: AccessRow) -> Reading:
    if row.request_time is None and row.llm_prompt_tokens is None and row.usage_prompt is None:
        raise foreign("an access log of APISIX or NGINX")
    prompt = _count(row.llm_prompt_tokens) or _count(row.usage_prompt) or None
    reading = Reading(
        prompt=prompt,
        cached=_count(row.usage_cached),
        written=_count(row.usage_written),
        output=_count(row.llm_completion_tokens) or _count(row.usage_completion) or None,
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


def _count(value: Any) -> int | None:
    """A variable's value; NGINX logs unset ones as empty or "-", APISIX prompt and output also as 0."""
    if type(value) is str and value.isdecimal() and len(value) < 10:
        return int(value)  # as `token` does; nearly all are
    return None if value is None or value in ("", "-") else token(value)


def _ttft(row: AccessRow) -> float | None:
    """Milliseconds of APISIX, or seconds to NGINX's upstream headers: those of a stream come first."""
    if row.llm_time_to_first_token is not None:
        return (milliseconds(row.llm_time_to_first_token) or None) if row.request_type != "ai_chat" else None
    header, whole = seconds(row.upstream_header_time), seconds(row.upstream_response_time)
    return header if header is not None and whole is not None and header < whole else None


def _looks(sample: Mapping[str, Any]) -> bool:
    return "llm_prompt_tokens" in sample or ("usage_prompt" in sample and "request_time" in sample)


APISIX_NGINX = RowFormat("apisix_nginx", AccessRow, _read, _looks)
