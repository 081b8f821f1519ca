"""Answers the four questions about a running exporter in a few lines of text."""

from collections.abc import Iterable, Iterator

from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import Metric
from kvcache_exporter.distributions import merged, quantile
from kvcache_exporter.model import Outcome, Sample
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.summary import Summary, summarise

_SHOWN: tuple[Outcome, ...] = ("full", "partial", "miss")


def answers(
    collectors: Iterable[TargetCollector], ledgers: Iterable[Ledger], window: str, now: float
) -> Iterator[str]:
    """Lines to print; `window` is a value of the label, `now` Unix seconds."""
    targets = list(collectors)
    found = [summarise(collector, window) for collector in targets]
    yield f"1 What is the hit rate?  (last {window})"
    for collector, summary in zip(targets, found, strict=True):
        yield (
            f"    {_name(collector):24} by tokens {percent(summary.token_hit_ratio)}   "
            f"by requests {percent(summary.request_hit_ratio)}"
        )
    yield "2 What does a miss cost?  TTFT p50 / p99 by outcome, all requests so far"
    for ledger in ledgers:
        yield f"    {ledger.source:24} " + "   ".join(_ttft(ledger, outcome) for outcome in _SHOWN)
    yield "3 What is evicting, and why?"
    for collector, summary in zip(targets, found, strict=True):
        yield f"    {_name(collector):24} {_pressure(collector, summary)}"
    yield "4 What happens when it is cold?"
    for collector in targets:
        yield f"    {_name(collector):24} {_age(collector, now)}"


def percent(value: float | None) -> str:
    return "  no traffic" if value is None else f"{100 * value:5.1f} %"


def _ttft(ledger: Ledger, outcome: Outcome) -> str:
    histograms = [tally.ttft[outcome] for tally in ledger.tallies.values() if outcome in tally.ttft]
    if not histograms:
        return f"{outcome} -"
    every = merged([histogram.distribution(c.SECONDS_BUCKETS) for histogram in histograms])
    return f"{outcome} <={quantile(every, 0.5):g} / <={quantile(every, 0.99):g} s"


def _pressure(collector: TargetCollector, summary: Summary) -> str:
    values = {metric: _largest(collector.samples, metric) for metric in (c.USAGE_RATIO, c.WAITING_REQUESTS)}
    usage, waiting = values[c.USAGE_RATIO], values[c.WAITING_REQUESTS]
    parts = [
        f"usage {percent(usage) if usage is not None else '-'}",
        f"waiting {'-' if waiting is None else f'{waiting:.0f}'}",
        f"preemptions {_rate(summary.preemptions_per_second)}",
        f"evicted tokens {_rate(summary.evicted_tokens_per_second)}",
    ]
    return "   ".join(parts)


def _rate(value: float | None) -> str:
    return "not reported" if value is None else f"{value:.2f}/s"


def _age(collector: TargetCollector, now: float) -> str:
    if not collector.up:
        return f"down: {collector.last_error}" if collector.last_error else "not scraped yet"
    life = collector.cold.lifecycle.life
    age = collector.cold.lifecycle.age(now)
    parts = [
        f"{life.restarts} restart{'' if life.restarts == 1 else 's'} seen",
        f"started {age:.0f} s ago" if age is not None else "started before it was watched",
        life.phase if life.warmup is None or life.phase == "cold" else f"warm after {life.warmup:.0f} s",
    ]
    return "   ".join(parts)


def _largest(samples: Iterable[Sample], metric: Metric) -> float | None:
    values = [s.value for s in samples if s.metric is metric and isinstance(s.value, float)]
    return max(values, default=None)


def _name(collector: TargetCollector) -> str:
    engine = f"{collector.engine.name} " if collector.engine else ""
    return f"{engine}{collector.who.target}"
