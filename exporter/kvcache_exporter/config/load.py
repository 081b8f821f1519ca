"""Reads a file into a section such as `Config`: walks schema and nodes together, reports every problem."""

import contextlib
import dataclasses
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from yaml import Mark
from yaml.nodes import MappingNode, Node

from kvcache_exporter.config.document import Document, RejectedError, did_you_mean, is_null, join, quote
from kvcache_exporter.config.kinds import NonEmpty, Unique
from kvcache_exporter.config.schema import Config
from kvcache_exporter.config.section import Problems, Section

Entries = dict[str, tuple[Node, Node]]
Root = TypeVar("Root", bound=Section)

_NO_CHOICES: Mapping[str, Collection[str]] = {}
_START = Mark("", 0, 0, 0, None, 0)
_EMPTY = MappingNode("tag:yaml.org,2002:map", [], _START, _START)


def load_config(path: str | Path, *, engines: Collection[str], formats: Collection[str]) -> Config:
    """Raises ConfigError with every problem of the file; `engines` and `formats` are the allowed names."""
    return load_section(path, Config, {"engine": engines, "format": formats})


def load_section(
    path: str | Path, section: type[Root], choices: Mapping[str, Collection[str]] = _NO_CHOICES
) -> Root:
    """The section in a file; an empty file counts as one without keys. Raises ConfigError."""
    document = Document(Path(path), choices)
    root = document.compose()
    if root is None or is_null(root):
        root = _EMPTY
    with contextlib.suppress(RejectedError):
        made = typing.cast("Root", _read_section(document, root, "", section))
    document.raise_problems()
    return made


def read_value(document: Document, node: Node, path: str, hint: Any) -> Any:
    """A node's value of the type `hint`; reports a problem and then raises RejectedError."""
    if typing.get_origin(hint) is typing.Annotated:
        base, mark = typing.get_args(hint)
        if isinstance(mark, Unique | NonEmpty):
            return _read_list(document, node, path, base, mark)
        return mark.read(document, node, path)
    if typing.get_origin(hint) is tuple:
        return _read_list(document, node, path, hint)
    if typing.get_origin(hint) is types.UnionType:
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return _read_section(document, node, path, hint)


def _read_list(
    document: Document, node: Node, path: str, hint: Any, mark: Unique | NonEmpty | None = None
) -> tuple[Any, ...]:
    item_hint = typing.get_args(hint)[0]
    items = document.items(node, path, "a list")
    if isinstance(mark, NonEmpty) and not items:
        raise document.reject(node, path, "found an empty list, expected at least one entry")
    values: dict[int, Any] = {}
    for number, item in enumerate(items):
        with contextlib.suppress(RejectedError):
            values[number] = read_value(document, item, f"{path}[{number}]", item_hint)
    if isinstance(mark, Unique):
        names = {number: getattr(value, mark.attribute) for number, value in values.items()}
        _check_unique(document, items, path, names, mark.attribute)
    if len(values) < len(items):
        raise RejectedError
    return tuple(values.values())


def _check_unique(document: Document, items: list[Node], path: str, names: dict[int, str], key: str) -> None:
    first_with: dict[str, int] = {}
    for number, name in names.items():
        first = first_with.setdefault(name, number)
        if first != number:
            where = document.entries(items[number], path, "a mapping")[key][1]
            message = f"found {quote(name)} as in {path}[{first}], expected a {key} of its own"
            document.report(where, f"{path}[{number}].{key}", message)


def _read_section(document: Document, node: Node, path: str, section: type[Section]) -> Section:
    entries = document.entries(node, path, "a mapping")
    values = _read_keys(document, entries, path, section)
    given = frozenset(entries)
    missing = [name for name in _required(section) if name not in given]
    for name in missing:
        document.report(node, path, f"found no {name}, expected one; add {name}")
    _report_all(document, node, path, entries, section.conflicts(given))
    if missing or len(values) < len(given & section_hints(section).keys()):
        raise RejectedError
    made = section(**values)
    _report_all(document, node, path, entries, made.problems())
    return made


def _read_keys(document: Document, entries: Entries, path: str, section: type[Section]) -> dict[str, Any]:
    hints = section_hints(section)
    values: dict[str, Any] = {}
    for key, (key_node, value_node) in entries.items():
        where = join(path, key)
        if key in section.REFUSED:
            document.report(key_node, where, section.REFUSED[key])
        elif key not in hints:
            document.report(key_node, where, "unknown key" + (did_you_mean(key, hints) or _known(hints)))
        else:
            with contextlib.suppress(RejectedError):
                values[key] = read_value(document, value_node, where, hints[key])
    return values


def _report_all(document: Document, node: Node, path: str, entries: Entries, problems: Problems) -> None:
    for key, message in problems:
        document.report(
            entries[key][1] if key in entries else node, join(path, key) if key else path, message
        )


def section_hints(section: type[Section]) -> dict[str, Any]:
    """The type of every key, with annotations."""
    hints = typing.get_type_hints(section, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(section)}  # type: ignore[arg-type]


def _required(section: type[Section]) -> list[str]:
    fields = dataclasses.fields(section)  # type: ignore[arg-type]
    return [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]


def _known(hints: Collection[str]) -> str:
    return f"; expected one of {', '.join(sorted(hints))}"
