"""Content negotiation by the Accept and Accept-Encoding headers."""

from typing import NamedTuple


class Offer(NamedTuple):
    """One comma-separated entry, `value;version=...;q=weight`; an invalid weight counts as 0."""

    value: str
    version: str
    weight: float


def prefers_openmetrics(accept: str) -> bool:
    """Whether OpenMetrics 1.0.0 is preferred; in doubt False, as every scraper reads the text format."""
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
    """Weight and specificity of the most specific matching entry, which decides by RFC 9110."""
    exactness = {"*/*": 1, f"{kind}/*": 2, f"{kind}/{subtype}": 3}
    fitting = [
        (offer.weight, exactness[offer.value] + bool(offer.version))
        for offer in offers
        if offer.value in exactness and offer.version in ("", version)
    ]
    return max(fitting, key=lambda one: one[1], default=(0.0, 0))
