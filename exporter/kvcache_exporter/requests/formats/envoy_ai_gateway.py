"""Envoy AI Gateway's access log. Its keys are the operator's choice: `fields` of the source names others.

Token counts stand in the gateway's metadata only after a stream that ended well; whatever model is behind,
input tokens include what was read and written.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kvcache_exporter.model import CUSTOM_PATHS
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller, Labels
from kvcache_exporter.requests.formats.layouts import Layouts
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.rows import Reading, ReadingDecoder, foreign
from kvcache_exporter.requests.formats.tiers import tier
from kvcache_exporter.requests.formats.values import label, milliseconds, number, seconds, token

KEYS: dict[str, tuple[str, ...]] = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "llm_input_token"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm_cached_input_token"),
    "written_tokens": ("gen_ai.usage.cache_creation.input_tokens", "llm_cache_creation_input_token"),
    "output_tokens": ("gen_ai.usage.output_tokens", "llm_output_token"),
    "ttft_ms": ("gen_ai.server.time_to_first_token_ms", "token_latency_ttft", "ttft"),
    "ttft_seconds": (),
    "duration_ms": ("duration", "dur_ms"),
    "duration_seconds": (),
    "timestamp": ("start_time", "time"),
    "model_name": ("gen_ai.response.model", "response_model", "gen_ai.request.model", "model"),
    "provider": ("gen_ai.provider.name", "backend_name"),
    "group": ("route",),
    "status": ("response_code", "status"),
    "request_id": ("x-request-id",),
    "service_tier": (),
}
"""Keys of the project's examples and documentation, by field; the first that has a value counts."""
_NOTHING: dict[str, Any] = dict.fromkeys(KEYS)
_ABSENT = ("-", "")
"""What Envoy writes for none."""
_FLAGS = "response_flags"
_TELLING = frozenset((*KEYS["prompt_tokens"], "gen_ai.request.model", "response_code", _FLAGS))
"""Keys of which one stands in every line, also without counts."""
_DISCONNECTED = "DC"
_BACKEND = re.compile(r"[^/]+/([^/]+)/route/.*")
"""`namespace/backend/route/...`, which the gateway writes where a provider's name is due."""


class _Layout(NamedTuple):
    """What the keys of a line say."""

    pairs: tuple[tuple[str, str], ...]
    """Fields and the line's keys for them, of several for one field the best last."""
    telling: bool


def _look_up(names: Iterable[str]) -> _Layout:
    names = frozenset(names)
    pairs = ((field, key) for field, keys in KEYS.items() for key in reversed(keys) if key in names)
    return _Layout(tuple(pairs), not _TELLING.isdisjoint(names))


_LAYOUTS = Layouts(_look_up)


class EnvoyDecoder(ReadingDecoder):
    """Raises ValueError if `fields` names a field that there is not."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(dict[str, Any])
        check_keys(options.fields)
        self._own = dict(options.fields)
        self._group_by = group_reader(options.group_by)
        self._read = Paths(dict.fromkeys(self._own.values())).read
        self._labels = Labeller(options, "", UNKNOWN_CONTRACT).labels

    def _reading(self, row: dict[str, Any], line: bytes) -> tuple[Reading, Labels]:
        layout = _LAYOUTS[tuple(row)]
        own = self._own_values(line) if self._own or self._group_by is not None else {}
        if not own and not layout.telling:
            raise foreign("Envoy AI Gateway's access log")
        value = _values(row, layout)
        value |= own
        reading = _reading(value, row.get(_FLAGS))
        reading.leave_out_embeddings()
        return reading, self._labels(reading.provider, reading.model, reading.group)

    def _own_values(self, line: bytes) -> dict[str, Any]:
        found = self._read(line) if self._own else {}
        values = {name: found[path] for name, path in self._own.items() if _is_value(found.get(path))}
        group = None if self._group_by is None else self._group_by(line)
        return values if group is None else {**values, "group": group}


def check_keys(fields: Mapping[str, str]) -> None:
    """Raises ValueError that says which entry of the table is wrong and what would be right."""
    for name in fields:
        if name not in CUSTOM_PATHS:
            raise ValueError(f"fields: unknown field {name!r}: use {', '.join(CUSTOM_PATHS)}")


def _values(row: Mapping[str, Any], layout: _Layout) -> dict[str, Any]:
    """Values by field."""
    found = _NOTHING.copy()
    for field, key in layout.pairs:
        value = row[key]
        if value is not None and value not in _ABSENT:
            found[field] = value
    return found


def _is_value(value: Any) -> bool:
    return value is not None and value not in _ABSENT


def _reading(value: Mapping[str, Any], flags: object) -> Reading:
    prompt, model = token(value["prompt_tokens"]), value["model_name"]
    left = isinstance(flags, str) and _DISCONNECTED in flags.split(",")
    named = value["provider"]
    backend = None if named is None else _BACKEND.fullmatch(label(named))
    return Reading(
        prompt=prompt,
        cached=token(value["cached_tokens"]),
        written=token(value["written_tokens"]),
        output=token(value["output_tokens"]),
        ttft=_time(value["ttft_seconds"], value["ttft_ms"]),
        duration=_time(value["duration_seconds"], value["duration_ms"]),
        at=value["timestamp"],
        provider=backend[1] if backend else named,
        model=model,
        group=value["group"],
        status=value["status"],
        ending="client_disconnect" if left else "",
        request_id=value["request_id"],
        tier=tier(value["service_tier"]),
        skip="not_a_request" if prompt is None and model is None and not _failed(value["status"]) else "",
    )


def _failed(status: object) -> bool:
    code = number(status)
    return code is not None and code >= 400


def _time(in_seconds: object, in_milliseconds: object) -> float | None:
    if in_seconds is None or number(in_seconds) is None:
        return milliseconds(in_milliseconds)
    return seconds(in_seconds)


class EnvoyAiGateway:
    """The format."""

    name = "envoy_ai_gateway"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample has one of the usual keys; with keys of the operator's, name the format."""
        return any(key in sample for key in KEYS["prompt_tokens"]) or (
            "response_flags" in sample and "gen_ai.request.model" in sample
        )

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back; raises ValueError if `fields` cannot be used."""
        return EnvoyDecoder(options)


ENVOY_AI_GATEWAY = EnvoyAiGateway()
