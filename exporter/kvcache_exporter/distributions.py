"""Merges histograms and bounds their quantiles."""

from collections.abc import Sequence

from kvcache_exporter.model import Distribution


def merged(states: Sequence[Distribution]) -> Distribution:
    """The sum of one or more histograms over the edges that all of them have, at which counts are exact."""
    edges = tuple(edge for edge in states[0].edges if all(edge in state.edges for state in states[1:]))
    columns = [
        (*(state.counts[state.edges.index(edge)] for edge in edges), state.counts[-1]) for state in states
    ]
    counts = tuple(map(sum, zip(*columns, strict=True)))
    return Distribution(edges, counts, sum(state.sum for state in states))


def quantile(state: Distribution, q: float) -> float:
    """An upper bound of the quantile: the upper edge of its bucket, +Inf beyond the last edge."""
    rank = q * state.counts[-1]
    place = next(i for i, count in enumerate(state.counts) if count >= rank)
    return state.edges[place] if place < len(state.edges) else float("inf")
