"""Envoy AI Gateway's access log. The operator chooses its keys: `fields` of the source names others.

Only streams that ended well have token counts in the gateway's metadata. Input tokens include cache reads and
writes for every model.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from kvcache_exporter.model import CUSTOM_PATHS
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller, Labels
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.rows import Reading, ReadingDecoder, foreign, tolerant
from kvcache_exporter.requests.formats.tiers import tier
from kvcache_exporter.requests.formats.values import (
    Tokens,
    first,
    label,
    milliseconds,
    number,
    seconds,
    token,
)

_ABSENT = ("-", "")
"""Envoy's placeholder for a missing value."""
_Name = Annotated[str, Meta(min_length=2)] | None
_Code = Annotated[int, Meta(ge=0, le=999)] | None
_PROMPT = ("gen_ai.usage.input_tokens", "llm_input_token")
_TELLING = frozenset((*_PROMPT, "gen_ai.request.model", "response_code", "response_flags"))
"""Every line has one of these keys, even without counts."""
_decode_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ONLY_OWN = frozenset({"ttft_seconds", "duration_seconds", "service_tier"})
"""Names in `fields` for which the project has no keys, or only in milliseconds."""
_DISCONNECTED = "DC"
_BACKEND = re.compile(r"[^/]+/([^/]+)/route/.*")
"""`namespace/backend/route/...`, which the gateway writes in place of a provider's name."""


class EnvoyRow(msgspec.Struct, gc=False):
    """Keys of the project's examples and documentation; of several for a fact, the first with a value counts.

    The first is named as `fields` of a source names the fact.
    """

    prompt_tokens: Tokens = field(default=None, name="gen_ai.usage.input_tokens")
    llm_input_token: Tokens = None
    cached_tokens: Tokens = field(default=None, name="gen_ai.usage.cache_read.input_tokens")
    llm_cached_input_token: Tokens = None
    written_tokens: Tokens = field(default=None, name="gen_ai.usage.cache_creation.input_tokens")
    llm_cache_creation_input_token: Tokens = None
    output_tokens: Tokens = field(default=None, name="gen_ai.usage.output_tokens")
    llm_output_token: Tokens = None
    ttft_ms: float | None = field(default=None, name="gen_ai.server.time_to_first_token_ms")
    token_latency_ttft: float | None = None
    ttft: float | None = None
    duration_ms: float | None = field(default=None, name="duration")
    dur_ms: float | None = None
    timestamp: _Name | float = field(default=None, name="start_time")
    time: _Name | float = None
    model_name: _Name = field(default=None, name="gen_ai.response.model")
    response_model: _Name = None
    request_model: _Name = field(default=None, name="gen_ai.request.model")
    model: _Name = None
    provider: _Name = field(default=None, name="gen_ai.provider.name")
    backend_name: _Name = None
    group: _Name = field(default=None, name="route")
    status: _Code = field(default=None, name="response_code")
    plain_status: _Code = field(default=None, name="status")
    request_id: _Name = field(default=None, name="x-request-id")
    response_flags: Any = None


def _tidy(row: EnvoyRow) -> None:
    for name in row.__struct_fields__:
        if getattr(row, name) in _ABSENT:
            setattr(row, name, None)


def _read(row: EnvoyRow) -> Reading:
    prompt = token(row.llm_input_token if row.prompt_tokens is None else row.prompt_tokens)
    model = first(row.model_name, row.response_model, row.request_model, row.model)
    named = row.backend_name if row.provider is None else row.provider
    status = row.plain_status if row.status is None else row.status
    flags = row.response_flags
    left = isinstance(flags, str) and _DISCONNECTED in flags.split(",")
    return Reading(
        prompt=prompt,
        cached=token(row.llm_cached_input_token if row.cached_tokens is None else row.cached_tokens),
        written=token(
            row.llm_cache_creation_input_token if row.written_tokens is None else row.written_tokens
        ),
        output=token(row.llm_output_token if row.output_tokens is None else row.output_tokens),
        ttft=milliseconds(first(row.ttft_ms, row.token_latency_ttft, row.ttft)),
        duration=milliseconds(row.dur_ms if row.duration_ms is None else row.duration_ms),
        at=row.time if row.timestamp is None else row.timestamp,
        provider=None if named is None else _backend(label(named)),
        model=model,
        group=row.group,
        status=status,
        ending="client_disconnect" if left else "",
        request_id=row.request_id,
        skip="not_a_request" if prompt is None and model is None and not _failed(status) else "",
    )


@lru_cache(maxsize=256)
def _backend(named: str) -> str:
    backend = _BACKEND.fullmatch(named)
    return backend[1] if backend else named


def _failed(status: object) -> bool:
    code = number(status)
    return code is not None and code >= 400


class EnvoyDecoder(ReadingDecoder):
    """Raises ValueError if `fields` has an unknown field."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(EnvoyRow)
        self._decode_row = tolerant(self._decode_row, EnvoyRow, _tidy)
        check_keys(options.fields)
        self._own = dict(options.fields)
        self._group_by = group_reader(options.group_by)
        self._paths = Paths(dict.fromkeys(self._own.values())).read
        self._labels = Labeller(options, "", UNKNOWN_CONTRACT).labels

    def _reading(self, row: EnvoyRow, line: bytes) -> tuple[Reading, Labels]:
        own = self._own_values(line) if self._own or self._group_by is not None else {}
        if not own and not _is_telling(row, line):
            raise foreign("Envoy AI Gateway's access log")
        for name in own.keys() - _ONLY_OWN:
            setattr(row, name, own[name])
        reading = _read(row)
        _add_own(reading, own)
        reading.leave_out_embeddings()
        return reading, self._labels(reading.provider, reading.model, reading.group)

    def _own_values(self, line: bytes) -> dict[str, Any]:
        found = self._paths(line) if self._own else {}
        values = {name: found[path] for name, path in self._own.items() if _is_value(found.get(path))}
        group = None if self._group_by is None else self._group_by(line)
        return values if group is None else {**values, "group": group}


def _add_own(reading: Reading, own: Mapping[str, Any]) -> None:
    if number(own.get("ttft_seconds")) is not None:
        reading.ttft = seconds(own["ttft_seconds"])
    if number(own.get("duration_seconds")) is not None:
        reading.duration = seconds(own["duration_seconds"])
    if "service_tier" in own:
        reading.tier = tier(own["service_tier"])


def _is_telling(row: EnvoyRow, line: bytes) -> bool:
    if row.prompt_tokens is not None or row.llm_input_token is not None or row.status is not None:
        return True
    return not _TELLING.isdisjoint(_decode_keys(line))


def check_keys(fields: Mapping[str, str]) -> None:
    """Raises ValueError that says which entry of the table is wrong and what would be right."""
    for name in fields:
        if name not in CUSTOM_PATHS:
            raise ValueError(f"fields: unknown field {name!r}: use {', '.join(CUSTOM_PATHS)}")


def _is_value(value: Any) -> bool:
    return value is not None and value not in _ABSENT


class EnvoyAiGateway:
    """The format."""

    name = "envoy_ai_gateway"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample has one of the usual keys; logs with other keys need the format's name."""
        return any(key in sample for key in _PROMPT) or (
            "response_flags" in sample and "gen_ai.request.model" in sample
        )

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back; raises ValueError if `fields` cannot be used."""
        return EnvoyDecoder(options)


ENVOY_AI_GATEWAY = EnvoyAiGateway()
