"""What the prefix cache did for one request: the rule that turns token counts into an outcome."""

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
    if cached is None or prompt is None:
        return "unknown"
    if cached == 0:
        return "uncacheable" if prompt < minimum else "miss"
    uncached = prompt - cached
    if uncached <= granule:
        return "full"
    near = uncached <= full_hit.max_uncached_tokens and uncached <= full_hit.fraction * prompt
    return "full" if near else "partial"


def cached_by_blocks(prompt: int, cached: int, block: int) -> int | None:
    """`cached`, or None for what no cache of whole blocks can hold.

    The decode side of a disaggregated pair reports all but one token for every request, cold ones too.
    """
    return None if cached and cached % block and prompt == cached + 1 else cached
