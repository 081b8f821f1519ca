"""Reads YAML files so that every complaint can name its file, line and column.

Problems are collected, not raised one by one, so that an operator sees all of them at once.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from kvcache_exporter.errors import ConfigError

MAX_FILE_BYTES = 1 << 20


class Entry(NamedTuple):
    """One key of a mapping and its value."""

    key: yaml.Node
    value: yaml.Node


class Reader:
    """One YAML file and the problems found in it so far."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.problems: list[str] = []

    def root(self) -> yaml.Node | None:
        """The top node, None for an empty file; raises ConfigError if the file cannot be read at all."""
        try:
            return yaml.compose(self._text(), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from error
        except yaml.YAMLError as error:
            raise ConfigError([f"{self.file}:1:1: file: not YAML: {error}"]) from error
        except RecursionError:
            raise ConfigError([f"{self.file}:1:1: file: nested too deeply; flatten it"]) from None

    def _text(self) -> str:
        try:
            with self.file.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
            if len(data) > MAX_FILE_BYTES:
                raise ConfigError([f"{self.file}:1:1: file: larger than 1 MiB; is it the right file?"])
            return data.decode()
        except OSError as error:
            raise ConfigError([f"{self.file}:1:1: file: cannot be read: {error.strerror}"]) from error
        except UnicodeDecodeError as error:
            raise ConfigError([f"{self.file}:1:1: file: not UTF-8 at byte {error.start}"]) from error

    def _syntax(self, error: yaml.MarkedYAMLError) -> ConfigError:
        mark = error.problem_mark or error.context_mark
        where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        return ConfigError([f"{self.file}:{where}: file: not YAML: {error.problem or error.context}"])

    def complain(self, node: yaml.Node, path: str, message: str) -> None:
        mark = node.start_mark
        self.problems.append(f"{self.file}:{mark.line + 1}:{mark.column + 1}: {path}: {message}")

    def raise_problems(self) -> None:
        if self.problems:
            raise ConfigError(self.problems)

    def entries(self, node: yaml.Node | None, path: str) -> dict[str, Entry]:
        """A mapping by key; an absent or null node is an empty mapping."""
        if node is None or _is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, path or "file", f"expected a mapping of keys to values, found {_kind(node)}")
            return {}
        found: dict[str, Entry] = {}
        for key, value in node.value:
            self._entry(found, key, value, path)
        return found

    def _entry(self, found: dict[str, Entry], key: yaml.Node, value: yaml.Node, path: str) -> None:
        if not isinstance(key, yaml.ScalarNode):
            self.complain(key, path or "file", f"expected a name as key, found {_kind(key)}")
        elif key.value in found:
            self.complain(key, join(path, key.value), "given twice; keep one")
        else:
            found[key.value] = Entry(key, value)

    def fields(
        self, node: yaml.Node | None, path: str, known: Iterable[str], hints: Mapping[str, str]
    ) -> dict[str, yaml.Node]:
        """As `entries`, but any key outside `known` is a problem; `hints` explain refused keys."""
        names = tuple(known)
        found = self.entries(node, path)
        for name, entry in found.items():
            if name not in names:
                hint = hints.get(name, f"unknown key; known here: {', '.join(names)}")
                self.complain(entry.key, join(path, name), hint)
        return {name: entry.value for name, entry in found.items() if name in names}

    def text(self, node: yaml.Node | None, path: str) -> str:
        """The text of a scalar; absent or null is an empty text."""
        if node is None or _is_null(node):
            return ""
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self.complain(node, path, f"expected a text, found {_kind(node)}")
        return ""

    def boolean(self, node: yaml.Node | None, path: str, default: bool) -> bool:
        if node is None or _is_null(node):
            return default
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:bool":
            return node.value.lower() in ("true", "yes", "on")
        self.complain(node, path, f"expected true or false, found {_kind(node)}")
        return default

    def items(self, node: yaml.Node | None, path: str) -> list[tuple[yaml.Node, str]]:
        """The texts of a list, each with its node."""
        if node is None or _is_null(node):
            return []
        if isinstance(node, yaml.SequenceNode):
            return [(item, self.text(item, f"{path}[{index}]")) for index, item in enumerate(node.value)]
        self.complain(node, path, f"expected a list, found {_kind(node)}")
        return []


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f"`{node.value[:60]}`"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
