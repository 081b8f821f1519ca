"""Converts timestamps of logs (ISO 8601, epoch in s, ms, us or ns) to Unix seconds.

Neighbouring lines mostly share their timestamp down to the second, so both parts are cached.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from kvcache_exporter.requests.formats.values import number

_LATEST = 1e10
"""Seconds; epochs above it are in a smaller unit."""
_REMEMBERED = 4096
_TAIL = re.compile(r"(?:[.,](\d{1,12}))? ?(?:Z|z|UTC|([+-])(\d\d):?(\d\d)?)?", re.ASCII)


class _Seconds(dict[str, float]):
    """Unix seconds by `2026-11-29T10:00:01`, read as UTC."""

    def __missing__(self, text: str) -> float:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        if len(text) != len("2026-11-29T10:00:01") or not 0 < at < _LATEST:
            raise ValueError(text)
        if len(self) >= _REMEMBERED:
            self.clear()
        self[text] = at
        return at


class _Tails(dict[str, float]):
    """Seconds to add for the rest after the second: `.250Z`, `+02:00`."""

    def __missing__(self, text: str) -> float:
        match = _TAIL.fullmatch(text)
        if match is None:
            raise ValueError(text)
        fraction, sign, hours, minutes = match.groups()
        east = (int(hours) * 3600 + int(minutes or 0) * 60) * (-1 if sign == "-" else 1) if sign else 0
        offset = float(f"0.{fraction or 0}") - east
        if len(self) < _REMEMBERED:
            self[text] = offset
        return offset


SECONDS = _Seconds()
TAILS = _Tails()


def timestamp(value: object) -> float | None:
    """Unix seconds; None if the value is not a time. Without a zone it is UTC."""
    if value is None or (type(value) is float and 0 < value < _LATEST):
        return value
    if type(value) is str:
        try:
            return SECONDS[value[:19]] + TAILS[value[19:]]
        except ValueError:
            pass
    return _epoch(number(value))


def timestamps(values: Sequence[object]) -> set[float | None]:
    """The distinct timestamps of many lines."""
    texts = set(map(type, values)) == {str}
    return set(map(timestamp, set(values) if texts else values))


def _epoch(value: float | None) -> float | None:
    if value is None or value <= 0:
        return None
    for units_per_second in (1.0, 1e3, 1e6, 1e9):
        if value / units_per_second < _LATEST:
            return value / units_per_second
    return None
