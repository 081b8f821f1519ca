"""Classifies requests by their token counts: full, partial, miss, uncacheable or unknown."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvcache_exporter.model import Outcome


@dataclass(frozen=True, slots=True)
class FullHit:
    """How much of its prompt a request may compute and still count as a full hit."""

    fraction: float = 0.05
    """Share of the prompt, from 0 to 1."""
    max_uncached_tokens: int = 1024
    """Upper limit of that share in tokens: 5 % of a very long prompt is real prefill."""


def classify(
    prompt: int | None, cached: int | None, granule: int, minimum: int, full_hit: FullHit
) -> Outcome:
    """The outcome of one request with `cached <= prompt`.

    Tokens written to the cache were computed, so they count as uncached.
    """
    return classify_all((prompt,), (cached,), granule, minimum, full_hit)[0]


def classify_all(
    prompts: Iterable[int | None], cached: Iterable[int | None], granule: int, minimum: int, full_hit: FullHit
) -> list[Outcome]:
    """`classify` for many requests, in one expression, since a function call for each costs most."""
    fraction, most = full_hit.fraction, full_hit.max_uncached_tokens
    return [
        "unknown"
        if hit is None or prompt is None
        else ("uncacheable" if prompt < minimum else "miss")
        if hit == 0
        else "full"
        if (left := prompt - hit) <= granule or (left <= most and left <= fraction * prompt)
        else "partial"
        for prompt, hit in zip(prompts, cached, strict=True)
    ]


def cached_by_blocks(prompt: int, cached: int, block: int) -> int | None:
    """`cached`, or None for a count that a cache of whole blocks cannot hold.

    The decode side of a disaggregated pair reports all but one token for every request, cold ones too.
    """
    return None if cached and cached % block and prompt == cached + 1 else cached
