"""SGLang's --export-metrics-to-file: one object a request with the server's own times."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import LineDecoder
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import Tokens, label, refusal, seconds


class SglangMetricsRow(msgspec.Struct, gc=False):
    """One line. It names no model."""

    id: Any = None
    finish_reason: Any = None
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    cached_tokens: Tokens = None
    e2e_latency: Any = None
    request_received_ts: Any = None
    first_token_latency: Any = None
    """From 0.5.23; earlier versions write one of the two times below."""
    prefill_finished_time: Any = None
    prefill_finished_ts: Any = None

    def ttft(self) -> float | None:
        """Time to first token in seconds, the queue included."""
        measured = seconds(self.first_token_latency)
        received = timestamp(self.request_received_ts)
        prefilled = timestamp(self.prefill_finished_time or self.prefill_finished_ts)
        if measured or received is None or prefilled is None or prefilled < received:
            return measured or None
        return prefilled - received


class _SglangMetricsDecoder(LineDecoder):
    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(SglangMetricsRow)
        self._labels = Labeller(options, "sglang", provider_caching("sglang")).labels
        self._group_by = Paths((options.group_by,)).first if options.group_by else None

    def _take(self, row: SglangMetricsRow, line: bytes, entries: list[Entry]) -> None:
        group = None if self._group_by is None else self._group_by(line)
        provider, model_name, group, granule, minimum = self._labels(None, None, group)
        prompt, cached = row.prompt_tokens, row.cached_tokens
        received = timestamp(row.request_received_ts)
        if _ending(row.finish_reason) == "abort":
            entries.append(Skipped("aborted", "abort", provider, model_name, group, received))
            return
        if prompt is None or (cached or 0) > prompt:
            raise refusal(prompt)
        entries.append(
            RequestRecord(
                prompt_tokens=prompt,
                cached_tokens=cached,
                output_tokens=row.completion_tokens,
                ttft_seconds=row.ttft(),
                duration_seconds=seconds(row.e2e_latency),
                timestamp=received,
                provider=provider,
                model_name=model_name,
                group=group,
                request_id=label(row.id),
                granule=granule,
                minimum_tokens=minimum,
            )
        )


def _ending(finish_reason: Any) -> Any:
    return finish_reason.get("type") if isinstance(finish_reason, dict) else finish_reason


class SglangMetricsFile:
    """The format."""

    name = "sglang_metrics_file"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample has the times that only this file has."""
        return "request_received_ts" in sample and "prompt_tokens" in sample

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return _SglangMetricsDecoder(options)


SGLANG_METRICS_FILE = SglangMetricsFile()
