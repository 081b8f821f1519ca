"""OpenAI's usage API and Anthropic's usage report: tokens by time bucket, without single requests.

A line is one result with its bucket's times, a bucket with `results`, or a whole page with `data`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Aggregate, Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import FAILURES, LineDecoder
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.rows import Loose, foreign
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import label, refusal

MAX_BUCKET_TOKENS = 10**15
BucketTokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_BUCKET_TOKENS)] | None


class Creation(msgspec.Struct, gc=False):
    """`cache_creation`; its sums may exceed the limit of a single request."""

    ephemeral_5m_input_tokens: BucketTokens = None
    ephemeral_1h_input_tokens: BucketTokens = None


class BucketResult(msgspec.Struct, gc=False):
    """OpenAI's keys (input includes all), Anthropic's (disjoint), and what results are grouped by."""

    input_tokens: BucketTokens = None
    input_cached_tokens: BucketTokens = None
    input_cache_write_tokens: BucketTokens = None
    input_cache_write_30m_tokens: BucketTokens = None
    input_cache_write_12h_tokens: BucketTokens = None
    num_model_requests: BucketTokens = None
    uncached_input_tokens: BucketTokens = None
    cache_read_input_tokens: BucketTokens = None
    cache_creation: Creation | Loose = None
    output_tokens: BucketTokens = None
    model: Any = None
    project_id: Any = None
    user_id: Any = None
    workspace_id: Any = None
    api_key_id: Any = None
    batch: Any = None
    service_tier: Any = None
    context_window: Any = None
    inference_geo: Any = None

    @property
    def identity(self) -> str:
        """The grouping values that distinguish the results of one bucket."""
        names = self.__struct_fields__[self.__struct_fields__.index("model") :]
        return "\0".join(label(getattr(self, name)) for name in names)


class Bucket(msgspec.Struct, gc=False):
    """A span of time; seconds since the epoch (OpenAI) or ISO 8601 (Anthropic)."""

    start_time: Any = None
    end_time: Any = None
    starting_at: Any = None
    ending_at: Any = None
    result: msgspec.Raw = msgspec.Raw()
    results: list[msgspec.Raw] | str | float | bool | dict[str, Any] | None = None


class UsagePage(Bucket, gc=False):
    """One line."""

    data: list[Bucket] | str | float | bool | dict[str, Any] | None = None


_result = msgspec.json.Decoder(BucketResult, strict=False).decode


class AggregateDecoder(LineDecoder):
    """Counts each result of a bucket once, however often the API was asked for it."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(UsagePage)
        self._seen = options.seen
        labeller = Labeller(options, "", UNKNOWN_CONTRACT)
        self._labels = labeller.labels
        self._group_by = group_reader(options.group_by)

    def _take(self, row: UsagePage, line: bytes, entries: list[Entry]) -> None:  # noqa: ARG002
        buckets = [b for b in (row.data if isinstance(row.data, list) else [row]) if _start(b) is not None]
        if not buckets:
            raise foreign("the providers' usage reports")
        found = [(bucket, raw) for bucket in buckets for raw in _results(bucket)]
        entries.extend(self._entry(bucket, raw) for bucket, raw in found)
        if not found:
            entries.append(Skipped("not_a_request"))

    def _entry(self, bucket: Bucket, raw: msgspec.Raw) -> Entry:
        try:
            result = _result(raw)
            counts = _counts(result)
        except RecordError as error:
            return RecordError(error.reason, str(error))
        except FAILURES:
            return RecordError("invalid", "a count of the result is negative, fractional or no number")
        start, end = _start(bucket), bucket.end_time or bucket.ending_at
        if not self._seen.add("aggregate", f"{start}\0{end}\0{result.identity}"):
            return Skipped("duplicate")
        group = (result.project_id or result.workspace_id) if self._group_by is None else self._group_by(raw)
        provider = "openai" if result.uncached_input_tokens is None else "anthropic"
        labels = self._labels(provider, result.model, group)
        prompt, cached, written, split = counts
        return Aggregate(
            prompt, cached, written, result.output_tokens, result.num_model_requests, timestamp(start),
            *labels[:3], split,
        )  # fmt: skip

    def snapshot(self) -> bytes:
        """Nothing to save: counted results are in the source's window of ids."""
        return b""


def _start(bucket: Bucket) -> Any:
    return bucket.start_time if bucket.start_time is not None else bucket.starting_at


def _results(bucket: Bucket) -> Iterator[msgspec.Raw]:
    if isinstance(bucket.results, list):
        yield from bucket.results
    elif bytes(bucket.result)[:1] == b"{":
        yield bucket.result


def _counts(result: BucketResult) -> tuple[int, int, int | None, tuple[tuple[str, int], ...]]:
    """Prompt, cached and written tokens, and the last by TTL. Raises RecordError if a count is missing."""
    if result.uncached_input_tokens is not None:
        creation = result.cache_creation if isinstance(result.cache_creation, Creation) else Creation()
        split = _pairs(("5m", creation.ephemeral_5m_input_tokens), ("1h", creation.ephemeral_1h_input_tokens))
        cached, written = result.cache_read_input_tokens or 0, sum(tokens for _, tokens in split)
        return result.uncached_input_tokens + cached + written, cached, written, split
    prompt, read = result.input_tokens, result.input_cached_tokens
    if prompt is None or read is None:
        raise RecordError("no_usage", "the result does not say how much of its input was cached")
    split = _pairs(("30m", result.input_cache_write_30m_tokens), ("12h", result.input_cache_write_12h_tokens))
    if read + (result.input_cache_write_tokens or 0) > prompt:
        raise refusal(prompt)
    return prompt, read, result.input_cache_write_tokens, split


def _pairs(*pairs: tuple[str, int | None]) -> tuple[tuple[str, int], ...]:
    return tuple((ttl, tokens) for ttl, tokens in pairs if tokens)


class AggregatedUsageApis:
    """The format."""

    name = "aggregated_usage_apis"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample is a result, a bucket or a page of a usage report."""
        data = sample.get("data")
        bucket = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else sample
        timed = "start_time" in bucket or "starting_at" in bucket
        return timed and (isinstance(bucket.get("results"), list) or isinstance(bucket.get("result"), dict))

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return AggregateDecoder(options)


AGGREGATED_USAGE_APIS = AggregatedUsageApis()
