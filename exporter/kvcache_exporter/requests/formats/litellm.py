"""LiteLLM's logs: standard logging payloads (also in arrays and Datadog messages) and spend log rows.

LiteLLM's prompt_tokens include cache reads and writes, whatever the provider.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats.anthropic_messages import CacheCreation, split_by_ttl
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller, Labels
from kvcache_exporter.requests.formats.lines import LineDecoder
from kvcache_exporter.requests.formats.litellm_rows import (
    LiteBasis,
    LiteRow,
    LiteUsage,
    cache_counts,
    usage_of,
)
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.statuses import failure_of_status, failure_of_text
from kvcache_exporter.requests.formats.tiers import REGIONAL, tier
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import label, milliseconds, refusal
from kvcache_exporter.requests.outcome import cached_by_blocks

_make = tuple.__new__


_UNSAID = (None, None, None)
_VLLM = ("hosted_vllm", "vllm")
_CALLS = (None, "completion", "acompletion", "anthropic_messages", "responses", "aresponses")
_OTHER_CALLS = re.compile(
    r"embedding|rerank|image|transcription|speech|moderation|ocr|video|batch|file|vector_store|search"
)
"""Types of calls that generate no text."""


class LiteDecoder(LineDecoder):
    """Decodes every shape of LiteLLM's logs."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(LiteRow)
        labeller = Labeller(options, "", UNKNOWN_CONTRACT)
        self._known, self._labels = labeller.known, labeller.labels
        self._group_by = group_reader(options.group_by)

    def _take(self, row: LiteRow, line: bytes, entries: list[Entry]) -> None:
        group = _group(row) if self._group_by is None else self._group_by(line)
        try:
            labels = self._known[row.custom_llm_provider, row.model, group]
        except (KeyError, TypeError):
            labels = self._labels(row.custom_llm_provider, row.model, group)
        start = timestamp(row.start)
        plain = row.call_type in _CALLS and row.status == "success" and not row.cache_hit
        plain = plain and row.request_id is None
        skipped = "" if plain else _reason_to_skip(row)
        if skipped:
            if row.start is None and row.model is None:
                raise RecordError("no_usage", "the record is not one of LiteLLM's")
            entries.append(Skipped(skipped, label(row.status), *labels[:3], timestamp=start))
            return
        entries.append(_record(row, labels, start))


def _record(row: LiteRow, labels: Labels, start: float | None) -> RequestRecord:
    usage = usage_of(row)
    prompt = row.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    output = row.completion_tokens if usage.completion_tokens is None else usage.completion_tokens
    cached, written, split = cache_counts(usage)
    if prompt is None or (cached or 0) + (written or 0) > prompt:
        raise refusal(prompt)
    end, first = timestamp(row.end), timestamp(row.first_token)
    provider, model_name, group, granule, minimum = labels
    if cached and cached + 1 == prompt and provider in _VLLM:
        cached = cached_by_blocks(prompt, cached, granule)
    return _make(
        RequestRecord,
        (
            prompt,
            cached,
            written,
            output,
            _ttft(row.stream, start, first, end),
            _duration(row, start, end),
            start,
            provider,
            model_name,
            group,
            "ok",
            label(row.id or row.request_id),
            split_by_ttl(split, written) if isinstance(split, CacheCreation) and written else (),
            granule,
            minimum,
            None,
            _tier(row, usage),
        ),
    )


def _tier(row: LiteRow, usage: LiteUsage) -> str:
    """The price tier by LiteLLM's cost breakdown, else by the provider's usage object."""
    basis = row.cost_breakdown
    if not isinstance(basis, LiteBasis):
        words = usage.service_tier, usage.speed, usage.inference_geo
        return "" if words == _UNSAID else tier(*words)
    found = [basis.service_tier or usage.service_tier, usage.speed, usage.inference_geo]
    if basis.data_residency:
        found.append(f"region_{label(basis.data_residency)}")
    if basis.vertex_location and basis.vertex_location != "global":
        found.append(REGIONAL)
    return tier(*found)


def _ttft(stream: object, start: float | None, first: float | None, end: float | None) -> float | None:
    """Time to first token, unless the call was not streamed: LiteLLM then reports the end of the call."""
    if stream is False or start is None or first is None or end is None:
        return None
    return first - start if start <= first < end else None


def _duration(row: LiteRow, start: float | None, end: float | None) -> float | None:
    if row.request_duration_ms is not None:
        return milliseconds(row.request_duration_ms)
    return end - start if start is not None and end is not None and end >= start else None


def _reason_to_skip(row: LiteRow) -> str:
    request_id = row.request_id
    if row.cache_hit is True or row.cache_hit in ("True", "true") or (
        isinstance(request_id, str) and "_cache_hit" in request_id
    ):  # fmt: skip
        return "response_cache"
    failed = row.status != "success" and failure_of_status(row.status)
    if not failed and isinstance(row.call_type, str) and _OTHER_CALLS.search(row.call_type):
        return "not_a_request"
    if row.status == "success" or not failure_of_status(row.status):
        return ""
    information = row.error_information
    details = information if isinstance(information, dict) else {}
    return failure_of_text(details.get("error_code"), details.get("error_class"), row.error_str)


def _group(row: LiteRow) -> Any:
    """The first tag set by a user; LiteLLM adds the user agent as a tag."""
    tags = row.request_tags
    if isinstance(tags, str):
        try:
            tags = msgspec.json.decode(tags)
        except (msgspec.DecodeError, RecursionError):
            tags = None
    if isinstance(tags, list):
        for tag in tags:
            if isinstance(tag, str) and not tag.startswith("User-Agent:"):
                return tag
    return row.model_group


@dataclass(slots=True, eq=False)
class LiteFormat:
    """One name for all forms of LiteLLM's logs; the decoder distinguishes them line by line."""

    name: str
    looks: Callable[[Mapping[str, Any]], bool]

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample has this form."""
        return self.looks(sample)

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return LiteDecoder(options)


def _is_payload(sample: Mapping[str, Any]) -> bool:
    return "startTime" in sample and ("litellm_call_id" in sample or "custom_llm_provider" in sample) and (
        "request_id" not in sample
    )  # fmt: skip


def _is_spend_log(sample: Mapping[str, Any]) -> bool:
    return "startTime" in sample and "request_id" in sample and ("spend" in sample or "call_type" in sample)


def _is_datadog(sample: Mapping[str, Any]) -> bool:
    return sample.get("ddsource") == "litellm"


LITELLM_SLP = LiteFormat("litellm_slp", _is_payload)
LITELLM_JSON_ARRAY = LiteFormat("litellm_json_array", _is_payload)
LITELLM_SPENDLOGS = LiteFormat("litellm_spendlogs", _is_spend_log)
LITELLM_DATADOG = LiteFormat("litellm_datadog", _is_datadog)
LITELLM = LiteFormat(
    "litellm", lambda sample: _is_payload(sample) or _is_spend_log(sample) or _is_datadog(sample)
)
