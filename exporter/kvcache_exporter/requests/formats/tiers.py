"""What providers bill apart from their usual prices: service tiers, fast modes, regions, kinds of tokens.

A tier is "" for the usual prices, else words joined by "+" (`fast+us`); `requests.rates` knows their prices.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from kvcache_exporter.requests.formats.values import label

AUDIO = "audio"
"""The request holds tokens of sound, which have prices of their own."""
EXPLICIT_CACHE = "explicit_cache"
"""What was read was put into the cache on request, where providers bill that apart."""
REGIONAL = "regional"
"""Served in one region of a provider that charges for that."""
_USUAL = frozenset(
    {
        "",
        "auto",
        "default",
        "standard",
        "ondemand",
        "global",
        "notavailable",
        "none",
        "unspecified",
        "traffictypeunspecified",
    }
)
_SPELLINGS = {"batches": "batch", "ondemandpriority": "priority", "ondemandflex": "flex"}
_LONGEST = 40


def tier(*words: object) -> str:
    """Of what a log has in the places where it tells of tiers; anything that is no text says nothing."""
    try:
        return _known(words)
    except TypeError:  # a list or an object where a word should be
        return _known(tuple(map(label, words)))


@lru_cache(maxsize=256)
def _known(words: tuple[object, ...]) -> str:
    return "+".join(sorted(set(filter(None, map(_word, map(label, words))))))


def _word(text: str) -> str:
    word = text.lower()[:_LONGEST].strip().replace("-", "_")
    bare = word.replace("_", "")
    return "" if bare in _USUAL else _SPELLINGS.get(bare, word.replace("+", "_"))


def by_fields(*paths: str) -> Callable[[Sequence[Any]], Sequence[str]]:
    """Reads the tiers of rows from attributes: nearly always a batch has the same ones in all rows."""
    value = attrgetter(*paths)
    several = len(paths) > 1

    def tiers(rows: Sequence[Any]) -> Sequence[str]:
        found = list(map(value, rows))
        if found.count(found[0]) == len(found):
            return [tier(*found[0]) if several else tier(found[0])] * len(found)
        return [tier(*words) if several else tier(words) for words in found]

    return tiers


def with_word(word: str, found: Sequence[object], tiers: Sequence[str]) -> Sequence[str]:
    """The tiers, with the word added where `found` holds something."""
    if not any(found):
        return tiers
    return [tier(*own.split("+"), word) if here else own for here, own in zip(found, tiers, strict=True)]
