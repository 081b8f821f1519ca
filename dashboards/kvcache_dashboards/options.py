"""Settings of the boards, with defaults, and their parsing from `key=value` texts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kvcache_exporter.catalogue import SECONDS_BUCKETS


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of all boards; field names are the keys of `--set`."""

    datasource: str = ""
    """Uid of the data source that is selected initially; empty leaves the choice to Grafana."""
    cluster_label: str = "cluster"
    """Label that distinguishes clusters; empty omits the variable."""
    title_prefix: str = "KV cache / "
    tags: tuple[str, ...] = ("kvcache",)
    refresh: str = "1m"
    timezone: str = "browser"
    time_from: str = "now-3h"
    ttft_objective: float = 1.0
    """Seconds; must be a bucket edge of the histogram, as only those can be counted exactly."""
    schema_version: int = 42


def read_options(overrides: Mapping[str, str]) -> Options:
    """The defaults with the overrides applied; a ValueError names the key and the expected value."""
    known = [field.name for field in fields(Options)]
    values: dict[str, Any] = {}
    for key, text in overrides.items():
        if key not in known:
            raise ValueError(f"dashboards: unknown setting {key!r}; expected one of {', '.join(known)}")
        values[key] = _READERS.get(key, _text)(key, text.strip() if key != "title_prefix" else text)
    return replace(Options(), **values)


def _text(_key: str, text: str) -> str:
    return text


def _matching(pattern: str, expected: str) -> Callable[[str, str], str]:
    def read(key: str, text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"dashboards: {key}={text!r}: expected {expected}")
        return text

    return read


def _tags(key: str, text: str) -> tuple[str, ...]:
    tags = tuple(tag.strip() for tag in text.split(",") if tag.strip())
    if not tags:
        raise ValueError(f"dashboards: {key}={text!r}: expected at least one tag; the boards' links use it")
    return tags


def _objective(key: str, text: str) -> float:
    edges = ", ".join(f"{edge:g}" for edge in SECONDS_BUCKETS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds not in SECONDS_BUCKETS:
        raise ValueError(f"dashboards: {key}={text!r}: expected seconds that are a bucket's edge: {edges}")
    return seconds


def _schema_version(key: str, text: str) -> int:
    # 36 is Grafana 9, the first version with data sources by type and uid.
    if not text.isdecimal() or not 36 <= int(text) <= 42:
        raise ValueError(f"dashboards: {key}={text!r}: expected a whole number from 36 to 42")
    return int(text)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "datasource": _matching(r"[A-Za-z0-9_-]{0,40}", "a data source's uid (letters, digits, - and _)"),
    "cluster_label": _matching(r"([a-zA-Z_][a-zA-Z0-9_]*)?", "a label name, or nothing for no variable"),
    "tags": _tags,
    "refresh": _matching(r"(\d+[smhd])?", "an interval such as 30s or 1m, or nothing for none"),
    "timezone": _matching(
        r"browser|utc|[A-Z]\w+(/[\w+-]+)*", "browser, utc, or a name such as Europe/Berlin"
    ),
    "time_from": _matching(r"now-\d+[smhdw]", "a start such as now-3h"),
    "ttft_objective": _objective,
    "schema_version": _schema_version,
}
