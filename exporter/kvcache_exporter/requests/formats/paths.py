"""Reads values at dotted paths (`metadata.route`, `request_tags.0`) out of JSON, decoding nothing else."""

from collections.abc import Iterable
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
            _plant(trie, (path,))  # loggers that flatten their fields write the dots into the key
        self._decode = msgspec.json.Decoder(_kind(trie)).decode
        self._inner: dict[tuple[str, ...], Paths] = {}

    def read(self, line: bytes | str) -> dict[str, Any]:
        """The value at each path, None where there is none; on a broken line every value is None."""
        try:
            row = self._decode(line)
        except _FAILURES:
            row = None
        return {path: self._value(row, path) for path in self._paths}

    def first(self, line: bytes | str) -> Any:
        """The value at the first path."""
        try:
            row = self._decode(line)
        except _FAILURES:
            return None
        return self._value(row, self._paths[0])

    def _value(self, row: Any, path: str) -> Any:
        steps = self._steps[path]
        flat = _child(row, path)
        return flat if flat is not None else self._walk(row, steps)

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
    """A type for msgspec that holds what the trie names and takes any JSON in its place."""
    fields = {step: _kind(below) for step, below in trie.items() if not step.isdecimal()}
    if not trie:
        return Any
    indexed: Trie = {}
    for step, below in trie.items():
        if step.isdecimal():
            _merge(indexed, below)
    elements = _kind(indexed)
    members = [
        (f"field_{place}", kind, msgspec.field(default=None, name=step))
        for place, (step, kind) in enumerate(fields.items())
    ]
    node = msgspec.defstruct("Node", members)
    return node | _LIST[elements] | str | int | float | bool | None


def _merge(into: Trie, trie: Trie) -> None:
    for step, below in trie.items():
        _merge(into.setdefault(step, {}), below)


def _child(value: Any, step: str) -> Any:
    if isinstance(value, msgspec.Struct):
        names = value.__struct_encode_fields__
        return getattr(value, f"field_{names.index(step)}") if step in names else None
    if isinstance(value, list) and step.isdecimal():
        return value[int(step)] if int(step) < len(value) else None
    return None
