"""The chart's README.md: its table of values, from the comments in values.yaml."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node

BEGIN, END = "<!-- BEGIN GENERATED -->", "<!-- END GENERATED -->"
_ELSEWHERE = ("prometheusRule", "alerts")
"""Values below are documented in docs/alerts.md instead."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Value:
    """A documented value."""

    path: tuple[str, ...]
    default: Any
    about: str


def documented(text: str) -> list[Value]:
    """The values with a comment in values.yaml, in order."""
    root = yaml.compose(text, yaml.SafeLoader)
    return list(_walk(root, (), text.splitlines())) if isinstance(root, MappingNode) else []


def readme(text: str, values_text: str) -> str:
    """The README with a new table."""
    head, _, rest = text.partition(BEGIN)
    rows = [_row(value) for value in documented(values_text) if not _elsewhere(value)]
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
    return f"{head}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def _walk(node: MappingNode, above: tuple[str, ...], lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        path = (*above, str(key.value))
        about = _comment(lines, key.start_mark.line)
        if about:
            yield Value(path, _plain(value), about)
        if isinstance(value, MappingNode):
            yield from _walk(value, path, lines)


def _comment(lines: list[str], line: int) -> str:
    """The text from `# --` to the key, without the marks."""
    found: list[str] = []
    for above in reversed(lines[:line]):
        match = re.fullmatch(r"\s*# ?(-- )?(.*)", above)
        if match is None:
            return ""
        found.insert(0, match[2])
        if match[1]:
            return " ".join(found)
    return ""


def _plain(node: Node) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def _elsewhere(value: Value) -> bool:
    depth = len(_ELSEWHERE)
    return len(value.path) > depth and value.path[:depth] == _ELSEWHERE


def _row(value: Value) -> str:
    default = json.dumps(value.default, ensure_ascii=False)
    shown = default if len(default) <= _SHOWN else "see values.yaml"
    return f"| `{'.'.join(value.path)}` | `{shown}` | {value.about.replace('|', chr(92) + '|')} |"
