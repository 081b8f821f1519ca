"""Token- and request-weighted hit rates of requests over a window, from a log or from an engine's page."""

from collections.abc import Iterator
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.model import Sample


class RequestIncreases(NamedTuple):
    """Increases over a window for the requests of one provider, model and group."""

    cached: float
    prompt: float
    full: float
    """Requests whose outcome is a full hit."""
    known: float
    """Requests whose outcome is known."""


def ratio(part: float, whole: float) -> float | None:
    """None without traffic, and if the part exceeds the whole: then neither number can be trusted."""
    return part / whole if whole > 0 and 0 <= part <= whole else None


def hit_rates(found: RequestIncreases, req: tuple[str, str, str, str], window: str) -> Iterator[Sample]:
    """Both hit rates, none without traffic; `req` holds the values of the labels REQ."""
    source, provider, model, group = req
    labels = ("", "", model, "", source, provider, group, window)
    for metric, value in (
        (c.TOKEN_HIT_RATIO, ratio(found.cached, found.prompt)),
        (c.REQUEST_HIT_RATIO, ratio(found.full, found.known)),
    ):
        if value is not None:
            yield Sample(metric, labels, value)
