"""Extracts log lines from Kafka messages."""

from collections.abc import Sequence

from kvcache_exporter.requests.lines import is_whole_json


def lines_of(value: bytes | None) -> Sequence[bytes]:
    """The lines of one message; a tombstone has none, and JSON over several lines counts as one."""
    if value is None:
        return ()
    if b"\n" not in value:
        return (value,) if value else ()
    if is_whole_json(value):
        return (value,)
    return [line for line in value.split(b"\n") if line and line != b"\r"]
