"""SGLang's --export-metrics-to-file: one object per request with the server's own times."""

from collections.abc import Mapping

from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.sglang_request import SglangDecoder, SglangRequest


class _SglangMetricsDecoder(SglangDecoder):
    def _take(self, row: SglangRequest, line: bytes, entries: list[Entry]) -> None:
        entries.append(self._entry(row, line, None))


class SglangMetricsFile:
    """The format."""

    name = "sglang_metrics_file"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample has the times that only this file has."""
        return "request_received_ts" in sample and "prompt_tokens" in sample

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back."""
        return _SglangMetricsDecoder(SglangRequest, "request_parameters.sampling_params.n", options)


SGLANG_METRICS_FILE = SglangMetricsFile()
