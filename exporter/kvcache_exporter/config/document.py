"""A YAML file as nodes with positions, and the problems found in it."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kvcache_exporter.errors import ConfigError

MAX_FILE_BYTES = 1 << 20
_STANDARD_TAG = "tag:yaml.org,2002:"
_TAGS: dict[type[Node], frozenset[str]] = {
    MappingNode: frozenset({"map"}),
    SequenceNode: frozenset({"seq"}),
    ScalarNode: frozenset({"str", "int", "float", "bool", "null", "timestamp", "merge", "value"}),
}
_SHOWN_CHARACTERS = 60
_MAX_PROBLEMS = 200


class RejectedError(Exception):
    """A value cannot be used; the problem has been reported to the document."""


@dataclass
class Document:
    """One configuration file while it is being read."""

    path: Path
    choices: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The allowed names of engines and formats, by `engine` and `format`."""
    _problems: set[tuple[int, int, str, str]] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        return self.path.parent

    def problem(self, line: int, column: int, path: str, message: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.add((line, column, path, message))

    def report(self, node: Node, path: str, message: str) -> None:
        self.problem(node.start_mark.line + 1, node.start_mark.column + 1, path or "document", message)

    def reject(self, node: Node, path: str, message: str) -> RejectedError:
        """Report the problem and return the exception to raise."""
        self.report(node, path, message)
        return RejectedError()

    def unexpected(self, node: Node, path: str, expected: str) -> RejectedError:
        return self.reject(node, path, f"found {found(node)}, expected {expected}")

    def raise_problems(self) -> None:
        if self._problems:
            raise ConfigError(
                [
                    f"{self.path}:{line}:{column}: {path}: {message}"
                    for line, column, path, message in sorted(self._problems)
                ]
            )

    def compose(self) -> Node | None:
        """The root node, None for an empty file; raises ConfigError if the file is not YAML."""
        text = self._text()
        try:
            return yaml.compose(text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            self.problem(line, column, "document", f"not valid YAML: {_complaint(error)}")
        except yaml.reader.ReaderError as error:
            line, column = _position(text, error.position)
            self.problem(line, column, "document", "not valid YAML: found a control character; remove it")
        except RecursionError:
            self.problem(1, 1, "document", "not valid YAML: lists or mappings are nested too deeply")
        except (ValueError, OverflowError):
            # PyYAML converts the digits of escapes and directives to numbers without checking their size.
            self.problem(
                1, 1, "document", "not valid YAML: an escape or a directive has a number out of range"
            )
        self.raise_problems()
        return None

    def _text(self) -> str:
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise self._unreadable(f"cannot be read: {error.strerror}; give a readable YAML file") from None
        if len(data) > MAX_FILE_BYTES:
            raise self._unreadable(
                f"larger than {MAX_FILE_BYTES} bytes; list targets in files (`file`) instead"
            )
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line, column = _position(data[: error.start].decode("utf-8", "replace"), error.start)
            raise self._unreadable("not UTF-8; save the file as UTF-8", line, column) from None

    def _unreadable(self, message: str, line: int = 1, column: int = 1) -> ConfigError:
        return ConfigError([f"{self.path}:{line}:{column}: document: {message}"])

    def scalar(self, node: Node, path: str, expected: str) -> str:
        """The text of a scalar as written, whatever type YAML would give it."""
        if not isinstance(node, ScalarNode) or not _is_standard(node) or is_null(node):
            raise self.unexpected(node, path, expected)
        if not node.value.isprintable():
            raise self.reject(
                node, path, f"found {found(node)}, expected {expected} without control characters"
            )
        return str(node.value)

    def items(self, node: Node, path: str, expected: str) -> list[Node]:
        if not isinstance(node, SequenceNode) or not _is_standard(node):
            raise self.unexpected(node, path, expected)
        return list(node.value)

    def entries(self, node: Node, path: str, expected: str) -> dict[str, tuple[Node, Node]]:
        """Pairs of key and value nodes by key, in the order of the file."""
        if not isinstance(node, MappingNode) or not _is_standard(node):
            raise self.unexpected(node, path, expected)
        entries: dict[str, tuple[Node, Node]] = {}
        for key_node, value in node.value:
            try:
                key = self.scalar(key_node, path, "a key")
            except RejectedError:
                continue
            if key in entries:
                first = entries[key][0].start_mark.line + 1
                self.report(
                    key_node, join(path, key), f"found twice, first in line {first}; remove one of them"
                )
            else:
                entries[key] = (key_node, value)
        return entries


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def found(node: Node) -> str:
    """The node in words, for an error message."""
    if not _is_standard(node):
        return f"the tag {quote(node.tag)}"
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return "nothing" if is_null(node) else quote(node.value)


def quote(text: str, limit: int = _SHOWN_CHARACTERS) -> str:
    """The text in double quotes, on one line, printable and cut to `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return f'"{printable}"'


def did_you_mean(word: str, words: Collection[str]) -> str:
    close = difflib.get_close_matches(word[:_SHOWN_CHARACTERS], words, n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def is_null(node: Node) -> bool:
    return bool(node.tag == _STANDARD_TAG + "null")


def _is_standard(node: Node) -> bool:
    return node.tag.removeprefix(_STANDARD_TAG) in _TAGS[type(node)]


def _complaint(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    return f"{error.context} {problem}" if problem.startswith("but ") else problem


def _position(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
