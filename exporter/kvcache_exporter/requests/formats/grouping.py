"""The prompt group of a record: one field of the log entry, or a template of several."""

import re
from collections.abc import Callable
from typing import Any

from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.values import label

_FIELD = re.compile(r"\{([^{}]*)\}")
_ABSENT = "-"
GroupReader = Callable[[bytes], Any]
"""Returns the raw group of a log line; None if it has none."""


class Template:
    """A `group_by`: one field (`metadata.route`), or a text with several (`{team}/{metadata.route}`)."""

    def __init__(self, group_by: str) -> None:
        plain = "{" not in group_by
        pieces = ["", group_by, ""] if plain else _FIELD.split(group_by)
        self._texts, self.fields = pieces[::2], tuple(pieces[1::2])
        self._plain = plain

    def fill(self, value: Callable[[str], Any]) -> Any:
        """`value` returns a field's value or None. A missing field among others shows as `-`."""
        if self._plain:
            return _joined(value(self.fields[0]))
        values = [label(_joined(value(field))) for field in self.fields]
        if not any(values):
            return None
        parts = zip((found or _ABSENT for found in values), self._texts[1:], strict=True)
        return self._texts[0] + "".join(found + text for found, text in parts)


def group_reader(group_by: str) -> GroupReader | None:
    """A reader of the fields of JSON lines; None for "", which means the format's own group."""
    if not group_by:
        return None
    template = Template(group_by)
    paths = Paths(dict.fromkeys(template.fields))
    if "{" in group_by:
        return lambda line: template.fill(paths.read(line).get)
    return lambda line: _joined(paths.first(line))


def _joined(value: Any) -> Any:
    """A list of tags as one text."""
    return value if type(value) is not list else ",".join(filter(None, map(label, value)))


def template_problem(group_by: str) -> str | None:
    """What is wrong with a field or template; None if it is valid."""
    rest = _FIELD.sub("", group_by)
    if "{" in rest or "}" in rest:
        return "braces must come in pairs around a field, such as {metadata.route}"
    if any(not field.strip() for field in _FIELD.findall(group_by)):
        return "{} names no field; write one, such as {metadata.route}"
    return None
