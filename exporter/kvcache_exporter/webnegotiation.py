"""Reads the Accept and Accept-Encoding headers of HTTP."""

from typing import NamedTuple

_OPENMETRICS = ("application", "openmetrics-text", "1.0.0")
_TEXT = ("text", "plain", "0.0.4")


class Offer(NamedTuple):
    """One comma-separated entry: `value;name=content;...;q=weight`."""

    value: str
    parameters: dict[str, str]
    weight: float


class Preference(NamedTuple):
    """How much a client wants a format: by weight, then by how exactly it asked."""

    weight: float
    exactness: int


def prefers_openmetrics(accept: str) -> bool:
    """False without a clear wish for OpenMetrics 1.0.0, as every scraper reads the text format."""
    offers = _offers(accept)
    openmetrics = _preference(offers, *_OPENMETRICS)
    return openmetrics.weight > 0 and openmetrics > _preference(offers, *_TEXT)


def accepts_gzip(accept_encoding: str) -> bool:
    weights = {offer.value: offer.weight for offer in _offers(accept_encoding)}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _offers(header: str) -> list[Offer]:
    return [_offer(entry) for entry in header.split(",") if entry.strip()]


def _offer(entry: str) -> Offer:
    value, *rest = (part.strip() for part in entry.split(";"))
    parameters: dict[str, str] = {}
    for part in rest:
        name, _, content = part.partition("=")
        parameters[name.strip().lower()] = content.strip().strip('"').lower()
    return Offer(value.lower(), parameters, _weight(parameters.pop("q", "1")))


def _weight(text: str) -> float:
    """An unreadable weight counts as not wanted."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0.0 <= weight <= 1.0 else 0.0


def _preference(offers: list[Offer], kind: str, subtype: str, version: str) -> Preference:
    """The most exact entry that fits decides, as RFC 9110 has it."""
    exactness = {"*/*": 1, f"{kind}/*": 2, f"{kind}/{subtype}": 3}
    found = [
        Preference(offer.weight, exactness[offer.value] + ("version" in offer.parameters))
        for offer in offers
        if offer.value in exactness and offer.parameters.get("version", version) == version
    ]
    return max(found, key=lambda one: one.exactness, default=Preference(0.0, 0))
