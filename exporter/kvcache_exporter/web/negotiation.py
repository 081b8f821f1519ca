"""Reads the Accept and Accept-Encoding headers of HTTP."""

from typing import NamedTuple


class Offer(NamedTuple):
    """One comma-separated entry: `value;version=...;q=weight`; an unreadable weight counts as not wanted."""

    value: str
    version: str
    weight: float


def prefers_openmetrics(accept: str) -> bool:
    """False without a clear wish for OpenMetrics 1.0.0, as every scraper reads the text format."""
    offers = _offers(accept)
    openmetrics = _preference(offers, "application", "openmetrics-text", "1.0.0")
    return openmetrics[0] > 0 and openmetrics > _preference(offers, "text", "plain", "0.0.4")


def accepts_gzip(accept_encoding: str) -> bool:
    weights = {offer.value: offer.weight for offer in _offers(accept_encoding)}
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _offers(header: str) -> list[Offer]:
    return [_offer(entry) for entry in header.lower().split(",") if entry.strip()]


def _offer(entry: str) -> Offer:
    value, *rest = (part.strip() for part in entry.split(";"))
    parameters = {name.strip(): text.strip().strip('"') for name, _, text in (p.partition("=") for p in rest)}
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        weight = 0.0
    return Offer(value, parameters.get("version", ""), weight if 0.0 <= weight <= 1.0 else 0.0)


def _preference(offers: list[Offer], kind: str, subtype: str, version: str) -> tuple[float, int]:
    """Weight and exactness of the most exact entry that fits; that one decides, as RFC 9110 has it."""
    exactness = {"*/*": 1, f"{kind}/*": 2, f"{kind}/{subtype}": 3}
    fitting = [
        (offer.weight, exactness[offer.value] + bool(offer.version))
        for offer in offers
        if offer.value in exactness and offer.version in ("", version)
    ]
    return max(fitting, key=lambda one: one[1], default=(0.0, 0))
