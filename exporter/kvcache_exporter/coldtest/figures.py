"""The figures of a phase: hit rates, TTFT by outcome and throughput, for all requests and by kind."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from kvcache_exporter.coldtest.drive import Answer, Run
from kvcache_exporter.coldtest.load import CYCLE
from kvcache_exporter.model import OUTCOMES, RequestRecord
from kvcache_exporter.requests.outcome import FullHit, classify
from kvcache_exporter.requests.report import Totals, quantile

RECOVERED_RATIO = 0.8


class Quantiles(msgspec.Struct):
    """Quantiles in seconds; each is an observed value."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


class Part(msgspec.Struct):
    """A set of answered requests; ratios are null if no reply reported its cached tokens."""

    requests: int
    prompt_tokens: int
    cached_tokens: int
    token_hit_ratio: float | None
    request_hit_ratio: float | None
    outcomes: dict[str, int]
    ttft: dict[str, Quantiles]
    ttft_all: Quantiles


class Phase(Part):
    """A whole phase."""

    output_tokens: int
    seconds: float
    requests_per_second: float | None
    prompt_tokens_per_second: float | None
    errors: dict[str, int]
    not_sent: int
    """Requests that were not sent because the time was over or the run was interrupted."""
    parts: dict[str, Part]
    """By kind of request."""

    @property
    def error_ratio(self) -> float:
        failed = sum(self.errors.values())
        return failed / (failed + self.requests) if failed else 0.0


class Recovery(msgspec.Struct):
    """When the hit rate of the last 20 answers first reached 80 % of the warm hit rate again."""

    target_token_hit_ratio: float
    seconds: float | None = None
    """Since the cold run began; null if it did not recover."""
    requests: int | None = None


class Counting(NamedTuple):
    """How token counts of replies are interpreted."""

    granule: int
    minimum: int
    absent_is_zero: bool

    def record(self, answer: Answer) -> RequestRecord | None:
        """None for a failed request; a cached count above the prompt's is dropped as impossible."""
        if answer.reply is None:
            return None
        prompt, cached, output, ttft, duration = answer.reply
        if cached is None and prompt is not None and self.absent_is_zero:
            cached = 0
        if cached is not None and (prompt is None or cached > prompt):
            cached = None
        return RequestRecord(prompt, cached, None, output, ttft, duration)


def absent_is_zero(runs: Iterable[Run]) -> bool:
    """Whether the server omits the cached count when it is 0, as vLLM to 0.23 and SGLang to 0.5.20 do.

    A server that sent counts but never a 0 is one of those.
    """
    cached = {a.reply.cached_tokens for run in runs for a in run.answers if a.reply is not None}
    return bool(cached - {None}) and 0 not in cached


def phase_figures(run: Run, counting: Counting) -> Phase:
    records = [(answer.kind, record) for answer in run.answers if (record := counting.record(answer))]
    whole = _part([record for _, record in records], counting)
    kinds = dict.fromkeys(kind for kind, _ in records)
    return Phase(
        **{name: getattr(whole, name) for name in Part.__struct_fields__},
        output_tokens=sum(record.output_tokens or 0 for _, record in records),
        seconds=run.seconds,
        requests_per_second=len(records) / run.seconds if run.seconds else None,
        prompt_tokens_per_second=whole.prompt_tokens / run.seconds if run.seconds else None,
        errors=dict(Counter(answer.error for answer in run.answers if answer.error).most_common()),
        not_sent=run.planned - len(run.answers),
        parts={
            kind: _part([record for own, record in records if own == kind], counting)
            for kind in sorted(kinds)
        },
    )


def _part(records: Sequence[RequestRecord], counting: Counting) -> Part:
    totals = Totals()
    for record in records:
        outcome = classify(
            record.prompt_tokens, record.cached_tokens, counting.granule, counting.minimum, FullHit()
        )
        totals.add(record, outcome)
    by_outcome = totals.ttft_by_outcome()
    return Part(
        requests=totals.requests,
        prompt_tokens=totals.prompt_tokens,
        cached_tokens=totals.cached_tokens,
        token_hit_ratio=totals.token_hit_ratio,
        request_hit_ratio=totals.request_hit_ratio,
        outcomes={outcome: n for outcome in OUTCOMES if (n := totals.outcomes[outcome])},
        ttft={outcome: _quantiles(values) for outcome, values in by_outcome.items()},
        ttft_all=_quantiles(sorted(value for values in by_outcome.values() for value in values)),
    )


def _quantiles(ordered: Sequence[float]) -> Quantiles:
    if not ordered:
        return Quantiles(0, None, None, None)
    return Quantiles(len(ordered), *(quantile(ordered, q) for q in (0.5, 0.95, 0.99)))


def recovery(run: Run, counting: Counting, warm: float | None) -> Recovery | None:
    """None if there is nothing to recover to: the warm hit rate is unknown or 0."""
    if not warm:
        return None
    found = Recovery(RECOVERED_RATIO * warm)
    window: list[RequestRecord] = []
    for number, answer in enumerate(sorted(run.answers, key=lambda answer: answer.finished), 1):
        record = counting.record(answer)
        if record is None or record.cached_tokens is None:
            continue
        window = [*window[1 - CYCLE :], record]
        prompt = sum(record.prompt_tokens or 0 for record in window)
        cached = sum(record.cached_tokens or 0 for record in window)
        if len(window) == CYCLE and cached >= found.target_token_hit_ratio * prompt:
            return Recovery(found.target_token_hit_ratio, answer.finished, number)
    return found
