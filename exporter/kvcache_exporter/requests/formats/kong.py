"""Kong Gateway's log entries with the fields of its AI plugins; http-log batches them as arrays."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.rows import Loose, Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.values import Tokens, label, milliseconds


class KongDetails(msgspec.Struct, gc=False):
    """`usage.prompt_tokens_details`, from Kong 3.11."""

    cached_tokens: Tokens = None


class KongUsage(msgspec.Struct, gc=False):
    """`usage` of the proxy plugin."""

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    prompt_tokens_details: KongDetails | Loose = None
    time_to_first_token: Any = None


class KongMeta(msgspec.Struct, gc=False):
    """`meta` of the proxy plugin."""

    provider_name: Any = None
    request_model: Any = None
    response_model: Any = None
    request_mode: Any = None


class KongProxy(msgspec.Struct, gc=False):
    """The part of the proxy plugin."""

    usage: KongUsage | Loose = None
    meta: KongMeta | Loose = None


class KongCache(msgspec.Struct, gc=False):
    """The part of the semantic cache, which serves whole replies."""

    cache_status: Any = None


class KongAi(msgspec.Struct, gc=False):
    """`ai`: the plugins by short or full name."""

    proxy: KongProxy | Loose = None
    long_proxy: KongProxy | Loose = msgspec.field(default=None, name="ai-proxy")
    advanced: KongProxy | Loose = msgspec.field(default=None, name="ai-proxy-advanced")
    cache: KongCache | Loose = None
    long_cache: KongCache | Loose = msgspec.field(default=None, name="ai-semantic-cache")


class Named(msgspec.Struct, gc=False):
    """An object of which only one of these fields is needed."""

    id: Any = None
    name: Any = None
    username: Any = None
    status: Any = None
    request: Any = None


class KongRow(msgspec.Struct, gc=False):
    """One entry."""

    started_at: Any = None
    request: Named | Loose = None
    response: Named | Loose = None
    latencies: Named | Loose = None
    route: Named | Loose = None
    consumer: Named | Loose = None
    ai: KongAi | Loose = None


_NOBODY = Named()


def _read(row: KongRow) -> Reading:
    request, response, latencies, route, consumer = (
        part if isinstance(part, Named) else _NOBODY
        for part in (row.request, row.response, row.latencies, row.route, row.consumer)
    )
    if row.started_at is None or response is _NOBODY:
        raise foreign("Kong's log")
    reading = Reading(
        duration=milliseconds(latencies.request),
        at=row.started_at,
        group=route.name or consumer.username,
        status=response.status,
        request_id=request.id,
    )
    proxy = _proxy(row.ai)
    if proxy is None:
        reading.skip = "not_a_request"
    else:
        _add_proxy(reading, proxy)
    if isinstance(row.ai, KongAi) and _served_from_cache(row.ai):
        reading.skip = "response_cache"
    return reading


def _proxy(ai: KongAi | Loose) -> KongProxy | None:
    if isinstance(ai, KongAi):
        for part in (ai.proxy, ai.long_proxy, ai.advanced):
            if isinstance(part, KongProxy):
                return part
    return None


def _add_proxy(reading: Reading, proxy: KongProxy) -> None:
    if isinstance(proxy.meta, KongMeta):
        reading.provider = proxy.meta.provider_name
        reading.model = proxy.meta.response_model or proxy.meta.request_model
    usage = proxy.usage
    if not isinstance(usage, KongUsage):
        return
    reading.prompt, reading.output = usage.prompt_tokens, usage.completion_tokens
    if isinstance(usage.prompt_tokens_details, KongDetails):
        reading.cached = usage.prompt_tokens_details.cached_tokens
    if isinstance(proxy.meta, KongMeta) and proxy.meta.request_mode == "stream":
        reading.ttft = milliseconds(usage.time_to_first_token)


def _served_from_cache(ai: KongAi) -> bool:
    parts = (ai.cache, ai.long_cache)
    return any(isinstance(p, KongCache) and label(p.cache_status).lower() == "hit" for p in parts)


def _looks(sample: Mapping[str, Any]) -> bool:
    return "started_at" in sample and "latencies" in sample


KONG = RowFormat("kong", KongRow, _read, _looks)
