"""Options of the plugin, from environment variables: an engine has no configuration file of ours."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from kvcache_exporter.requests.outcome import FullHit

N = TypeVar("N", int, float)

FRACTION = "KVCACHE_EXPORTER_FULL_HIT_FRACTION"
MAX_UNCACHED = "KVCACHE_EXPORTER_FULL_HIT_MAX_UNCACHED_TOKENS"
BLOCK_SIZE = "KVCACHE_EXPORTER_BLOCK_SIZE"


class Options(NamedTuple):
    """Corresponds to `outcome.full_hit` of the exporter's configuration."""

    full_hit: FullHit = FullHit()
    block_size: int | None = None
    """Tokens that the engine caches as a unit; None takes the engine's own setting."""


def read_options(environment: Mapping[str, str]) -> Options:
    """Raises ValueError with the variable's name and what was expected."""
    default = FullHit()
    fraction = _number(environment, FRACTION, default.fraction, float, "a number from 0 to 1")
    most = _number(environment, MAX_UNCACHED, default.max_uncached_tokens, int, "a number of tokens")
    block = _number(environment, BLOCK_SIZE, 0, int, "a number of tokens, or 0 to ask the engine")
    if not fraction <= 1:
        raise ValueError(f"{FRACTION}={fraction} is not a number from 0 to 1; correct or unset it")
    return Options(FullHit(fraction, most), block or None)


def _number(environment: Mapping[str, str], name: str, default: N, kind: type[N], expected: str) -> N:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = kind(text)
    except ValueError:
        value = kind(-1)
    if not 0 <= value < 2**53:
        raise ValueError(f"{name}={text!r} is not {expected}; correct or unset it")
    return value
