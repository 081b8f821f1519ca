"""Converts loose values of JSON logs (numeric strings, 1920.0, null) to counts, seconds and labels."""

import unicodedata
from typing import Annotated, Any

import msgspec

from kvcache_exporter.errors import RecordError

MAX_TOKENS = 10**9
"""More tokens than this in one request is a broken log, not a prompt."""
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] | None
"""Type of a token count in a row: msgspec refuses bools, negatives, fractions and absurd numbers."""
Milliseconds = float | str | bool | list[Any] | dict[str, Any] | None
"""Type of a duration in a row: any JSON, with all numbers as floats."""
MAX_SECONDS = 1e6
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] | None
"""The type of a length of time in a row of which msgspec refuses what is none."""
MAX_LABEL = 200


def token(value: object) -> int | None:
    """A token count; None for null. Raises RecordError("invalid") for anything else."""
    if value is None or (type(value) is int and 0 <= value <= MAX_TOKENS):
        return value
    if type(value) is str and len(value) < 10 and value.isdecimal():
        return int(value)
    count = number(value)
    if count is not None and count == int(count) and 0 <= count <= MAX_TOKENS:
        return int(count)
    raise RecordError("invalid", "a token count is negative, fractional, too large or not a number")


def refusal(prompt: int | None) -> RecordError:
    """The error of a record without a prompt count, or with more cached than prompt tokens."""
    if prompt is None:
        return RecordError("no_usage", "the record has no count of prompt tokens")
    return RecordError("cached_exceeds_prompt", "cached and written tokens exceed the prompt's")


def first(*values: Any) -> Any:
    """The first of these that is not None."""
    for value in values:
        if value is not None:
            return value
    return None


def seconds(value: object, per_second: float = 1.0) -> float | None:
    """A duration in seconds; None if the value is missing or impossible."""
    length = _parsed(value) if type(value) is str else value if type(value) is float else number(value)
    if length is None or not 0 <= length <= MAX_SECONDS * per_second:
        return None
    return length / per_second


def milliseconds(value: object) -> float | None:
    """As `seconds`, for a value in milliseconds."""
    if type(value) is float:
        return value / 1e3 if 0 <= value <= MAX_SECONDS * 1e3 else None
    return None if value is None else seconds(value, 1e3)


def label(value: object) -> str:
    """A label value of at most 200 characters without control characters; "" if there is none."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = value[:MAX_LABEL]
        return text if text.isprintable() else "".join(map(_visible, text))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)[:MAX_LABEL] if number(value) is not None else ""
    return ""


def number(value: object) -> float | None:
    """A finite number of sane size, also from a string; None for everything else, bools too."""
    kind = type(value)
    if kind is str:
        return _parsed(value)  # type: ignore[arg-type]  # checked above
    if (kind is int or kind is float) and abs(value) < 1e30:  # type: ignore[arg-type]  # False for NaN
        return value  # type: ignore[return-value]
    return None


def _parsed(text: str) -> float | None:
    if len(text) > 40 or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e30 else None


def _visible(character: str) -> str:
    return "\ufffd" if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} else character
