"""One finished request in vLLM's statistics, whatever fields the version has.

vLLM calls its statistics unstable: every field is looked up by name, and a missing or impossible value is
`None`, never zero.
"""

from typing import NamedTuple

_FAILED = {"ABORT": "aborted", "ERROR": "server_error"}


class Finished(NamedTuple):
    """`None` means that the engine does not report it."""

    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    ttft_seconds: float | None
    duration_seconds: float | None
    error: str
    """A value of the catalogue's REQUEST_ERROR_REASONS; "" if the request succeeded."""


def read_finished(stats: object) -> Finished:
    """From `vllm.v1.metrics.stats.FinishedRequestStats`, 0.11 to 0.32 (cached tokens from 0.13 on)."""
    prompt = _tokens(stats, "num_prompt_tokens")
    cached = _tokens(stats, "num_cached_tokens")
    if cached is not None and (prompt is None or cached > prompt):
        cached = None
    output = _tokens(stats, "num_generation_tokens")
    reason = getattr(getattr(stats, "finish_reason", None), "name", "")
    return Finished(
        prompt,
        cached,
        output,
        _first_token(stats) if output else None,
        _seconds(stats, "e2e_latency"),
        _FAILED.get(reason, ""),
    )


def _first_token(stats: object) -> float | None:
    """Seconds from arrival at the API server to the first token.

    Only the end-to-end latency starts at arrival; `decode_time` runs from the first token to the last one.
    The sum of queue and prefill is the second choice, as it omits tokenisation and the way to the scheduler.
    """
    whole, decode = _seconds(stats, "e2e_latency"), _seconds(stats, "decode_time")
    if whole and decode is not None:
        return whole - decode if whole >= decode else None
    queued, prefill = _seconds(stats, "queued_time"), _seconds(stats, "prefill_time")
    return None if queued is None or prefill is None else queued + prefill


def _tokens(stats: object, name: str) -> int | None:
    value = getattr(stats, name, None)
    return value if isinstance(value, int) and value >= 0 else None


def _seconds(stats: object, name: str) -> float | None:
    # A clock that was set back, or a request that was never scheduled, gives negative times.
    value = getattr(stats, name, None)
    return value if isinstance(value, int | float) and 0 <= value < float("inf") else None
