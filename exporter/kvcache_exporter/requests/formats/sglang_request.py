"""SGLang's `meta_info` of a finished request, in any of its logs."""

from typing import Any

import msgspec

from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import LineDecoder
from kvcache_exporter.requests.formats.minimums import provider_caching
from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import Tokens, label, number, refusal, seconds


class SglangRequest(msgspec.Struct, gc=False):
    """Has no model name. Tokens recomputed after a retraction are in none of the counts (from 0.5.6)."""

    id: Any = None
    finish_reason: Any = None
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    cached_tokens: Tokens = None
    e2e_latency: Any = None
    request_received_ts: Any = None
    first_token_latency: Any = None
    """From 0.5.23; earlier versions have one of the two times below."""
    prefill_finished_time: Any = None
    prefill_finished_ts: Any = None

    def ttft(self) -> float | None:
        """Time to first token in seconds, including the queue."""
        measured = seconds(self.first_token_latency)
        received = timestamp(self.request_received_ts)
        prefilled = timestamp(self.prefill_finished_time or self.prefill_finished_ts)
        if measured or received is None or prefilled is None or prefilled < received:
            return measured or None
        return prefilled - received

    def aborted(self) -> bool:
        """Whether the client or the server aborted the request."""
        reason = self.finish_reason
        return (reason.get("type") if isinstance(reason, dict) else reason) == "abort"


class SglangDecoder(LineDecoder):
    """Makes records of finished requests; a subclass finds them in its rows."""

    def __init__(self, row: type[msgspec.Struct], n: str, options: DecoderOptions) -> None:
        """`n` is the path of the requested number of choices."""
        super().__init__(row)
        self._labels = Labeller(options, "sglang", provider_caching("sglang")).labels
        self._group_by = group_reader(options.group_by)
        self._n = Paths((n,)).first

    def _entry(self, request: SglangRequest, line: bytes, at: float | None) -> Entry:
        group = None if self._group_by is None else self._group_by(line)
        provider, model_name, group, granule, minimum = self._labels(None, None, group)
        received = timestamp(request.request_received_ts) or at
        if request.aborted():
            return Skipped("aborted", "abort", provider, model_name, group, received)
        prompt, cached = request.prompt_tokens, request.cached_tokens
        if prompt is not None and cached is not None and cached > prompt:
            cached = once(prompt, cached, self._n(line))
        if prompt is None or (cached or 0) > prompt:
            raise refusal(prompt)
        return RequestRecord(
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=request.completion_tokens,
            ttft_seconds=request.ttft(),
            duration_seconds=seconds(request.e2e_latency),
            timestamp=received,
            provider=provider,
            model_name=model_name,
            group=group,
            request_id=label(request.id),
            granule=granule,
            minimum_tokens=minimum,
        )


def once(prompt: int, cached: int, choices: object) -> int:
    """The cached count of one choice; versions before 0.5.6 sum it over all choices.

    That is detectable only if the sum exceeds the prompt, so only then it is undone.
    """
    n = number(choices) or 0
    if cached > prompt and n > 1 and n == int(n) and cached % int(n) == 0:
        return cached // int(n)
    return cached
