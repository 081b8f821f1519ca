"""Cloudflare AI Gateway's log list: tokens in and out, without the provider's prompt cache."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.rows import Reading, RowFormat, foreign
from kvcache_exporter.requests.formats.values import Tokens, milliseconds


class CloudflareRow(msgspec.Struct, gc=False):
    """One log of the list."""

    id: Any = None
    cached: Any = None
    """The gateway's own response cache."""
    created_at: Any = None
    duration: Any = None
    model: Any = None
    provider: Any = None
    status_code: Any = None
    success: Any = None
    tokens_in: Tokens = None
    tokens_out: Tokens = None
    metadata: Any = None


_route = Paths(("route",)).first


def _read(row: CloudflareRow) -> Reading:
    if row.tokens_in is None and row.status_code is None and row.success is None:
        raise foreign("Cloudflare AI Gateway's log")
    metadata = row.metadata
    return Reading(
        prompt=row.tokens_in,
        output=row.tokens_out,
        duration=milliseconds(row.duration),
        at=row.created_at,
        provider=row.provider,
        model=row.model,
        group=_route(metadata) if isinstance(metadata, str) else _key(metadata, "route"),
        status=row.success if row.success is False and row.status_code in (None, 200) else row.status_code,
        request_id=row.id,
        skip="response_cache" if row.cached is True else "",
    )


def _key(metadata: object, name: str) -> object:
    return metadata.get(name) if isinstance(metadata, dict) else None


def _looks(sample: Mapping[str, Any]) -> bool:
    return "tokens_in" in sample and "tokens_out" in sample and "cached" in sample


CLOUDFLARE_AIG = RowFormat("cloudflare_aig", CloudflareRow, _read, _looks)
