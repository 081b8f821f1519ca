"""Reads values at dotted paths (`metadata.route`, `request_tags.0`) from JSON without decoding the rest."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LIST: Any = list
Trie = dict[str, "Trie"]


class Paths:
    """Any number of paths, read in one pass over a line."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._steps = {path: tuple(path.split(".")) for path in self._paths}
        trie: Trie = {}
        for path, steps in self._steps.items():
            _plant(trie, steps)
            _plant(trie, (path,))  # loggers that flatten fields write keys with dots
        self._decode: Callable[[bytes | str], Any] = msgspec.json.Decoder(_kind(trie)).decode
        self._straight = {path: attrgetter(_attributes(trie, steps)) for path, steps in self._steps.items()}
        self._inner: dict[tuple[str, ...], Paths] = {}

    def read(self, line: bytes | str) -> dict[str, Any]:
        """The value at each path, None if there is none; all None for a broken line."""
        row = self._row(line)
        return {path: self._value(row, path) for path in self._paths}

    def first(self, line: bytes | str) -> Any:
        """The value at the first path."""
        return self._value(self._row(line), self._paths[0])

    def _row(self, line: bytes | str) -> Any:
        try:
            return self._decode(line)
        except _FAILURES:
            return None

    def _value(self, row: Any, path: str) -> Any:
        try:
            value = self._straight[path](row)
        except AttributeError:  # a list, a string or nothing on the way
            value = None
        if value is not None:
            return value
        flat = _child(row, path)
        return flat if flat is not None else self._walk(row, self._steps[path])

    def _walk(self, value: Any, steps: tuple[str, ...]) -> Any:
        for done, step in enumerate(steps):
            if isinstance(value, str):  # JSON inside a JSON string, as in SQL dumps and SGLang's parameters
                return self._nested(steps[done:]).first(value)
            value = _child(value, step)
        return value

    def _nested(self, steps: tuple[str, ...]) -> "Paths":
        if steps not in self._inner:
            self._inner[steps] = Paths((".".join(steps),))
        return self._inner[steps]


def _plant(trie: Trie, steps: tuple[str, ...]) -> None:
    for step in steps:
        trie = trie.setdefault(step, {})


def _kind(trie: Trie) -> Any:
    """A msgspec type with the fields of the trie, which accepts any JSON in their place."""
    if not trie:
        return Any
    members = [
        (_attribute(trie, step), _kind(below), msgspec.field(default=None, name=step))
        for step, below in trie.items()
    ]
    elements: Trie = {}
    for step, below in trie.items():
        if step.isdecimal():
            _merge(elements, below)
    return msgspec.defstruct("Node", members) | _LIST[_kind(elements)] | str | int | float | bool | None


def _merge(into: Trie, trie: Trie) -> None:
    for step, below in trie.items():
        _merge(into.setdefault(step, {}), below)


def _attribute(trie: Trie, step: str) -> str:
    """JSON keys need not be Python identifiers, so attributes are numbered."""
    return f"field_{list(trie).index(step)}"


def _attributes(trie: Trie, steps: tuple[str, ...]) -> str:
    names = []
    for step in steps:
        names.append(_attribute(trie, step))
        trie = trie[step]
    return ".".join(names)


def _child(value: Any, step: str) -> Any:
    if isinstance(value, msgspec.Struct):
        names = value.__struct_encode_fields__
        return getattr(value, value.__struct_fields__[names.index(step)]) if step in names else None
    if isinstance(value, list) and step.isdecimal():
        return value[int(step)] if int(step) < len(value) else None
    return None
