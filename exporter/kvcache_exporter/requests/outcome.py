"""What the prefix cache did for one request: the rule that turns token counts into an outcome."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvcache_exporter.model import Outcome


@dataclass(frozen=True, slots=True)
class FullHit:
    """How little of its prompt a request may still compute and count as a full hit."""

    fraction: float = 0.05
    """Share of the prompt, from 0 to 1."""
    max_uncached_tokens: int = 1024
    """Cap on that share, so that 5 % of a very long prompt does not pass for nothing."""


def classify(
    prompt: int | None, cached: int | None, granule: int, minimum: int, full_hit: FullHit
) -> Outcome:
    """Exactly one outcome for any counts with `cached <= prompt`; written tokens were computed, so they do
    not lessen what counts as uncached.
    """
    return classify_all((prompt,), (cached,), granule, minimum, full_hit)[0]


def classify_all(
    prompts: Iterable[int | None], cached: Iterable[int | None], granule: int, minimum: int, full_hit: FullHit
) -> list[Outcome]:
    """As `classify`, for many requests: in one expression, since a call for each costs most."""
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
    """`cached`, or None for what no cache of whole blocks can hold.

    The decode side of a disaggregated pair reports all but one token for every request, cold ones too.
    """
    return None if cached and cached % block and prompt == cached + 1 else cached
