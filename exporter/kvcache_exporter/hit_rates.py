"""The two hit rates of requests over a window, whether a log or an engine's page tells of the requests."""

from collections.abc import Iterator
from typing import NamedTuple

from kvcache_exporter import catalogue as c
from kvcache_exporter.model import Sample


class RequestIncreases(NamedTuple):
    """What the requests of one provider, model and group gained in a window."""

    cached: float
    prompt: float
    full: float
    """Requests that skipped prefill."""
    known: float
    """Requests of which that is known."""


def ratio(part: float, whole: float) -> float | None:
    """None without traffic, and where the part exceeds the whole: then neither number is to be believed."""
    return part / whole if whole > 0 and 0 <= part <= whole else None


def hit_rates(found: RequestIncreases, req: tuple[str, str, str, str], window: str) -> Iterator[Sample]:
    """By tokens and by requests; none without traffic. `req` are the labels of REQ."""
    source, provider, model, group = req
    labels = ("", "", model, "", source, provider, group, window)
    for metric, value in (
        (c.TOKEN_HIT_RATIO, ratio(found.cached, found.prompt)),
        (c.REQUEST_HIT_RATIO, ratio(found.full, found.known)),
    ):
        if value is not None:
            yield Sample(metric, labels, value)
