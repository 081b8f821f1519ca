"""Annotations by which an object configures its scraping."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvcache_exporter.config import TargetGroup, is_url_path, port_problem
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.targets.base import DiscoveryError

PREFIX = "kvcache-exporter.io/"
_KEYS = ("scrape", "port", "path", "scheme", "engine")


@dataclass(frozen=True, slots=True)
class Wishes:
    """How an object wants to be scraped."""

    group: TargetGroup
    """The group with the scheme, path and engine of the annotations."""
    port: str | None


def read_annotations(
    annotations: Mapping[str, str] | None, group: TargetGroup, port: str | None, *, opt_in: bool
) -> Wishes | None:
    """None if the object is not to be scraped; raises DiscoveryError that names a wrong annotation."""
    own = {key: text for key, text in (annotations or {}).items() if key.startswith(PREFIX)}
    for key in own:
        if key.removeprefix(PREFIX) not in _KEYS:
            known = ", ".join(_KEYS)
            raise DiscoveryError(
                f"the annotation {key[:80]} is unknown; expected {PREFIX} with one of {known}"
            )
    scrape = _word(own, "scrape", ("true", "false")) or ("false" if opt_in else "true")
    if scrape == "false":
        return None
    return Wishes(_steered(own, group), _port(own) or port)


def _steered(own: Mapping[str, str], group: TargetGroup) -> TargetGroup:
    scheme = _word(own, "scheme", ("http", "https"))
    if scheme == "http" and group.url_scheme == "https":
        raise _wrong("scheme", scheme, "https as in its group; credentials would be sent in clear text")
    path = own.get(PREFIX + "path")
    if path is not None and not is_url_path(path):
        raise _wrong("path", path, "a path such as /metrics")
    engine = _word(own, "engine", ("auto", *(engine.name for engine in ENGINES)))
    return replace(
        group, scheme=scheme or group.scheme, path=path or group.path, engine=engine or group.engine
    )


def _port(own: Mapping[str, str]) -> str | None:
    text = own.get(PREFIX + "port")
    if text is not None and (expected := port_problem(text)):
        raise _wrong("port", text, expected)
    return text


def _word(own: Mapping[str, str], key: str, words: tuple[str, ...]) -> str | None:
    text = own.get(PREFIX + key)
    if text is not None and text not in words:
        raise _wrong(key, text, f"one of {', '.join(words)}")
    return text


def _wrong(key: str, text: str, expected: str) -> DiscoveryError:
    shown = "".join(c if c.isprintable() else "?" for c in text[:60])
    return DiscoveryError(f'the annotation {PREFIX}{key} is "{shown}", expected {expected}')
