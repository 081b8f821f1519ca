"""The text that `report` prints: small tables and a histogram of TTFT by outcome."""

from collections.abc import Iterator
from datetime import UTC, datetime

from kvcache_exporter.model import OUTCOMES
from kvcache_exporter.requests.report import SLICE_SECONDS, Report, Totals, quantile
from kvcache_exporter.requests.tally import Money

_BARS = "▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_TTFT_EDGES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, float("inf"))
_MOST_GROUPS = 15
_SHOWN_UNPRICED = 5
_WIDTH = 24


def report_text(report: Report) -> Iterator[str]:
    """Lines to print."""
    totals = report.totals
    known = totals.requests - totals.outcomes["unknown"]
    yield f"{totals.requests:,} requests, {totals.prompt_tokens:,} prompt tokens"
    yield ""
    yield "1 What is the hit rate?"
    tokens = f"{totals.cached_tokens:,} of {totals.known_prompt_tokens:,} tokens from the cache"
    requests = f"{totals.outcomes['full']:,} of {known:,} requests skipped prefill"
    yield f"    by tokens     {_percent(totals.token_hit_ratio)}   {tokens}"
    yield f"    by requests   {_percent(totals.request_hit_ratio)}   {requests}"
    if totals.outcomes["unknown"]:
        share = totals.outcomes["unknown"] / totals.requests
        yield f"    unknown       {_percent(share)}   of requests do not say what was cached; left out above"
    if totals.aggregates:
        share = totals.aggregate_prompt_tokens / totals.prompt_tokens if totals.prompt_tokens else 0.0
        figures = (
            f"of prompt tokens from {totals.aggregates:,} figures of usage reports, which hold no requests"
        )
        yield f"    aggregates    {_percent(share)}   {figures}"
    yield ""
    yield from _miss_cost(report)
    yield "3 What is evicting, and why?"
    yield f"    {_writes(totals)}"
    if totals.expired:
        why = "after their group was silent for longer than the provider keeps a prefix"
        yield f"    {totals.expired:,} misses came {why}"
    yield ""
    yield "4 What happens when it is cold?"
    yield from _over_time(report)
    yield ""
    yield from _groups(report)
    yield from _losses(report)


def _miss_cost(report: Report) -> Iterator[str]:
    totals = report.totals
    yield "2 What does a miss cost?  TTFT in seconds, outcomes never mixed"
    yield f"    {'outcome':12} {'requests':>10} {'with TTFT':>10} {'p50':>8} {'p95':>8} {'p99':>8}"
    by_outcome = totals.ttft_by_outcome()
    for outcome in (known for known in OUTCOMES if totals.outcomes[known]):
        values = by_outcome.get(outcome, [])
        cells = [f"{quantile(values, q):8.3f}" if values else f"{'-':>8}" for q in (0.5, 0.95, 0.99)]
        yield f"    {outcome:12} {totals.outcomes[outcome]:>10,} {len(values):>10,} {' '.join(cells)}"
    yield ""
    yield from _histogram(by_outcome)
    yield from _money(report)


def _money(report: Report) -> Iterator[str]:
    money = report.totals.money
    if not money.priced + money.unpriced:
        return
    if money.priced:
        yield f"    cost ${money.cost:,.2f}, without a cache ${money.without_cache:,.2f}: {_saved(money)}"
    if money.unpriced:
        why = "the table lacks the model or the tier, or the log does not say what was billed"
        requests = money.priced + money.unpriced
        yield f"    not in these sums: {money.unpriced:,} of {requests:,} requests; {why}:"
        for (provider, model, tier), count in report.unpriced.most_common(_SHOWN_UNPRICED):
            name = "/".join(filter(None, (provider, model))) or "no model"
            yield f"        {count:,} of {name}{f', {tier}' if tier else ''}"
    yield ""


def _saved(money: Money) -> str:
    verb = "saved" if money.savings >= 0 else "lost, for writes are paid and not read back:"
    share = abs(money.savings) / money.without_cache if money.without_cache else None
    return f"{verb} ${abs(money.savings):,.2f} ({_percent(share).strip()})"


def _histogram(by_outcome: dict[str, list[float]]) -> Iterator[str]:
    if not by_outcome:
        yield "    no record carries a TTFT"
        yield ""
        return
    yield "    " + f"{'TTFT':>9}  " + "".join(f"{outcome:{_WIDTH + 2}}" for outcome in by_outcome).rstrip()
    low = 0.0
    for edge in _TTFT_EDGES:
        label = f"<= {edge:g} s" if edge != float("inf") else f" > {low:g} s"
        bars = (_bar(sum(low < v <= edge for v in vs) / len(vs)) for vs in by_outcome.values())
        yield f"    {label:>9}  {''.join(f'{bar:{_WIDTH + 2}}' for bar in bars)}".rstrip()
        low = edge
    yield ""


def _bar(share: float) -> str:
    eighths = round(share * _WIDTH * 8)
    return "█" * (eighths // 8) + (_BARS[eighths % 8 - 1] if eighths % 8 else "") or ("·" if share else "")


def _writes(totals: Totals) -> str:
    if not totals.written_tokens:
        return "a usage log does not tell evictions; scrape the engine for them"
    share = totals.cached_tokens / totals.written_tokens
    return f"{totals.written_tokens:,} tokens written, {totals.cached_tokens:,} read back ({share:.2f} x)"


def _over_time(report: Report) -> Iterator[str]:
    ratios = {slot: c / p for slot, (c, p) in sorted(report.slices.items()) if p}
    if len(ratios) < 3:
        yield "    too little time in this log to tell"
        return
    slot, lowest = min(ratios.items(), key=lambda item: item[1])
    at = f"{datetime.fromtimestamp(slot * SLICE_SECONDS, UTC):%Y-%m-%d %H:%M} UTC"
    median = quantile(sorted(ratios.values()), 0.5)
    yield f"    coldest five minutes: {_percent(lowest)} by tokens from {at}, median {_percent(median)}"
    recent = list(ratios.values())[-72:]
    top = max(recent) or 1.0
    yield f"    every five minutes:   {''.join(_SPARKS[min(7, int(8 * r / top))] for r in recent)}"


def _groups(report: Report) -> Iterator[str]:
    if len(report.groups) < 2:
        return
    rows = report.worst_groups()
    yield "Groups, most uncached tokens first"
    names = f"{'group':24} {'requests':>9} {'uncached':>14} {'by tokens':>10} {'by requests':>12}"
    yield f"    {names} {'TTFT p99':>9}"
    for name, totals in rows[:_MOST_GROUPS]:
        every = sorted(v for values in totals.ttft_by_outcome().values() for v in values)
        p99 = f"{quantile(every, 0.99):9.3f}" if every else f"{'-':>9}"
        yield (
            f"    {name[:24] or '-':24} {totals.requests:>9,} {totals.uncached_tokens:>14,} "
            f"{_percent(totals.token_hit_ratio):>10} {_percent(totals.request_hit_ratio):>12} {p99}"
        )
    if len(rows) > _MOST_GROUPS:
        yield f"    and {len(rows) - _MOST_GROUPS} more; --json has them all"
    yield ""


def _losses(report: Report) -> Iterator[str]:
    if report.errors:
        yield "Failed requests, in no figure above: " + ", ".join(
            f"{count:,} {reason}" for reason, count in report.errors.most_common()
        )
    if report.skipped:
        yield "Entries that are no request of their own: " + ", ".join(
            f"{count:,} {reason}" for reason, count in report.skipped.most_common()
        )
    if report.failures:
        yield "Lines that gave no record: " + ", ".join(
            f"{count:,} {reason}" for reason, count in report.failures.most_common()
        )


def _percent(value: float | None) -> str:
    return f"{100 * value:5.1f} %" if value is not None else "-"
