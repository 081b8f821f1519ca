"""Parses one sample line of the text format or OpenMetrics, as leniently as real pages need."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from kvcache_exporter.model import RawSeries

_QUOTED = rb'"(?:[^"\\]|\\.)*"'
_SAMPLE = re.compile(
    rb"(?P<prefix>[ \t]*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?[ \t]*"
    rb"(?P<labels>\{(?:[^\"}]|" + _QUOTED + rb")*\})?[ \t]*)"
    rb"(?P<value>[^ \t]+)(?P<tail>(?:[ \t]+[^ \t#][^ \t]*)?(?:[ \t]*#[ \t].*)?[ \t]*)"
)
_LABEL = re.compile(
    rb"[ \t]*(?:(?P<key>[a-zA-Z_][a-zA-Z0-9_]*|"
    + _QUOTED
    + rb")[ \t]*=[ \t]*)?(?P<value>"
    + _QUOTED
    + rb")[ \t]*(?:,|$)"
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_VALUE = re.compile(rb"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_TIMESTAMP = re.compile(rb"[ \t]*(?:-?[0-9.]+(?:[eE][+-]?[0-9]+)?)?[ \t]*(?:#.*)?")


class Line(NamedTuple):
    """One sample line; `prefix` is everything before the value."""

    series: RawSeries
    value: float
    prefix: bytes
    bare: bool
    """Whether nothing (timestamp, exemplar) follows the value."""


def sample_name(line: bytes) -> bytes:
    """The name at the start of a sample line, without checking the rest."""
    brace = line.find(b"{")
    if brace < 0:
        parts = line.split(None, 1)
        return parts[0] if parts else b""
    if brace == 0:
        # UTF-8 style: {"name",label="value"}
        return line[2 : line.find(b'"', 2)]
    return line[:brace].strip()


def parse_known(line: bytes, known: Mapping[bytes, RawSeries]) -> Line | None:
    """Parses a bare line of a known series; None if the line needs `parse_line`."""
    cut = line.rfind(b" ") + 1
    series = known.get(line[:cut])
    if series is None or not _VALUE.fullmatch(line, cut):
        return None
    return Line(series, float(line[cut:]), line[:cut], bare=True)


def parse_line(line: bytes) -> Line | None:
    """None if the line is not a valid sample."""
    match = _SAMPLE.fullmatch(line)
    if match is None or not _VALUE.fullmatch(match["value"]) or not _TIMESTAMP.fullmatch(match["tail"]):
        return None
    try:
        name, labels = _name_and_labels(match["name"], match["labels"])
    except ValueError:
        return None
    return Line(RawSeries(name, labels), float(match["value"]), match["prefix"], not match["tail"].strip())


def _name_and_labels(name: bytes | None, block: bytes | None) -> tuple[str, tuple[tuple[str, str], ...]]:
    labels: list[tuple[str, str]] = []
    text = name.decode() if name else ""
    inner = block[1:-1].strip(b" \t") if block else b""
    position = 0
    while position < len(inner):
        match = _LABEL.match(inner, position)
        if match is None:
            raise ValueError("bad label")
        value = _unquote(match["value"])
        if match["key"] is None:
            if text:
                raise ValueError("two names")
            text = value
        else:
            labels.append(
                (_unquote(match["key"]) if match["key"][:1] == b'"' else match["key"].decode(), value)
            )
        position = match.end()
    if not text or len({key for key, _ in labels}) != len(labels):
        raise ValueError("no name, or a label twice")
    return text, tuple(sorted(labels))


def _unquote(quoted: bytes) -> str:
    text = quoted[1:-1].decode()
    if "\\" not in text:
        return text
    # Prometheus keeps unknown escapes as they are.
    return _ESCAPE.sub(lambda m: {"n": "\n", '"': '"', "\\": "\\"}.get(m[1], m[0]), text)
