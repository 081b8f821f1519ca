"""Finds counters of a page that are wrong or misleading, by how they grew."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.scrape.pairs import Claim
from kvcache_exporter.scrape.select import Key
from kvcache_exporter.scrape.watched import Watched
from kvcache_exporter.windows import History, Span

LOOKUPS_SUSPECT_ABOVE = 1.05
_WINDOW = c.WINDOWS["5m"]
_FILLED = 0.8
"""Share of the window that pages must cover before counters that lag behind each other are compared."""
_LEAST_PROMPT_TOKENS = 10_000
_LEAST_REQUESTS = 10
_LEAST_WITNESSED = 0.1
"""Hit rate that another pair of counters must show for a pair that stands still to count as frozen."""
_LOOKUP_COUNTERS = (c.PREFIX_QUERY_TOKENS, c.PROMPT_TOKENS, c.ENGINE_REQUESTS)


class Evidence(NamedTuple):
    """What the counters of a page are checked against."""

    watched: Mapping[Key, Watched]
    claims: Sequence[Claim]
    admitted: Mapping[Key, float]
    """Running and waiting requests by key."""
    since: float | None
    """Time of the last page before the engine's latest start."""


def anomalies(page: Evidence, history: History) -> Counter[str]:
    """Anomalies of the newest page by reason, each at most once per key, `frozen` once per target."""
    found: Counter[str] = Counter()
    step, span = history.last_step(), history.span(_WINDOW)
    for key, item in page.watched.items():
        if step:
            found.update(_excesses(item, step))
        if span and _recounts(item, page.admitted.get(key, 0.0), span):
            found["lookups_recounted"] += 1
        if span and _preempted_lookups(item, span):
            found["preempted_lookups"] += 1
    # Counters that a new process does not have yet are not frozen.
    if (life := history.span_since(_WINDOW, page.since)) and is_frozen(page, life):
        found["frozen"] += 1
    return found


def _excesses(item: Watched, step: Span) -> list[str]:
    """Parts that grew by more than their whole; a hit rate made of lookups is checked elsewhere."""
    hits, queries = (item.counters.get(metric) for metric in (c.PREFIX_HIT_TOKENS, c.PREFIX_QUERY_TOKENS))
    pairs = [("hits_exceed_queries", hits, queries)]
    if item.basis != "lookup":
        pairs.append(("cached_exceeds_prompt", item.cached, item.prompt))
    return [
        reason
        for reason, part, whole in pairs
        if part and whole and step.increase(part) > step.increase(whole)
    ]


def _recounts(item: Watched, admitted: float, span: Span) -> bool:
    """Whether more tokens were looked up than prompts had.

    A prompt is looked up when it is admitted but counted later (vLLM: at its first token, SGLang: at its
    end), so running and waiting requests are allowed one prompt of average length each.
    """
    queries, prompt, requests = (item.counters.get(metric) for metric in _LOOKUP_COUNTERS)
    if queries is None or prompt is None:
        return False
    tokens = span.increase(prompt)
    finished = span.increase(requests) if requests else 0.0
    in_flight = admitted * tokens / finished if finished else 0.0
    return span.increase(queries) - in_flight > LOOKUPS_SUSPECT_ABOVE * tokens > 0


def _preempted_lookups(item: Watched, span: Span) -> bool:
    """Whether a hit rate made of lookups includes preempted requests that found their own blocks again."""
    preemptions = item.counters.get(c.PREEMPTIONS)
    return item.basis == "lookup" and preemptions is not None and span.increase(preemptions) > 0


def is_frozen(page: Evidence, span: Span) -> bool:
    """Whether cached tokens stand still in one pair of counters and grow in another on the same page.

    Without any hit all pairs stand still, so an hour of misses is never called frozen.
    """
    requests = [terms for item in page.watched.values() if (terms := item.counters.get(c.ENGINE_REQUESTS))]
    if span.seconds < _FILLED * _WINDOW or sum(map(span.increase, requests)) < _LEAST_REQUESTS:
        return False
    grown = [(span.increase(claim.cached), span.increase(claim.prompt)) for claim in page.claims]
    grown = [(cached, prompt) for cached, prompt in grown if prompt >= _LEAST_PROMPT_TOKENS]
    witnessed = any(cached >= _LEAST_WITNESSED * prompt for cached, prompt in grown)
    return witnessed and any(cached <= 0 for cached, _ in grown)
