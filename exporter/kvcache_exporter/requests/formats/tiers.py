"""Price tiers: service tiers, fast modes, regions and kinds of tokens with their own prices.

A tier is "" for the usual prices, else words joined by "+" (`fast+us`); `requests.rates` knows their prices.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from kvcache_exporter.requests.formats.values import label

AUDIO = "audio"
"""The request has audio tokens, which have their own prices."""
EXPLICIT_CACHE = "explicit_cache"
"""Reads of explicitly cached tokens, for providers that bill them separately."""
REGIONAL = "regional"
"""Served in a region for which the provider charges more."""
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
    """The tier by the values of a log's tier fields; anything but text is ignored."""
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
    """A function that reads the tiers of rows from attributes; most batches have the same one in all rows."""
    value = attrgetter(*paths)
    several = len(paths) > 1

    def tiers(rows: Sequence[Any]) -> Sequence[str]:
        found = list(map(value, rows))
        if found.count(found[0]) == len(found):
            return [tier(*found[0]) if several else tier(found[0])] * len(found)
        return [tier(*words) if several else tier(words) for words in found]

    return tiers


def with_word(word: str, found: Sequence[object], tiers: Sequence[str]) -> Sequence[str]:
    """The tiers, with the word added where `found` is set."""
    if not any(found):
        return tiers
    return [tier(*own.split("+"), word) if here else own for here, own in zip(found, tiers, strict=True)]
