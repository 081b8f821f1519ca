"""Kinds of mappings from names to text: labels of a target, fields of a custom log format."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from yaml.nodes import Node

from kvcache_exporter.catalogue import CATALOGUE
from kvcache_exporter.config.document import Document, RejectedError, did_you_mean, join, quote

OWN_LABELS = frozenset({"le", *(label for metric in CATALOGUE for label in metric.labels)})
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True)
class Labels:
    """Labels for every sample of a target, as pairs."""

    label: str = "mapping of label names to text"

    def read(self, document: Document, node: Node, path: str) -> tuple[tuple[str, str], ...]:
        return read_pairs(document, node, path, label_name_problem)

    def show(self, value: tuple[tuple[str, str], ...]) -> dict[str, str]:
        return dict(value)


@dataclass(frozen=True)
class Fields:
    """Fields of a custom log format, as pairs of field name and dotted path."""

    names: frozenset[str]
    label: str = "mapping of field names to dotted paths"

    def read(self, document: Document, node: Node, path: str) -> tuple[tuple[str, str], ...]:
        return read_pairs(document, node, path, self._name_problem)

    def show(self, value: tuple[tuple[str, str], ...]) -> dict[str, str]:
        return dict(value)

    def _name_problem(self, name: str) -> str:
        if name in self.names:
            return ""
        known = ", ".join(sorted(self.names))
        return f"unknown field {quote(name)}, expected one of {known}{did_you_mean(name, self.names)}"


def read_pairs(
    document: Document, node: Node, path: str, name_problem: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for name, (key, value) in document.entries(node, path, "a mapping of names to text").items():
        problem = name_problem(name)
        if problem:
            document.report(key, join(path, name), problem)
        try:
            pairs.append((name, document.scalar(value, join(path, name), "text")))
        except RejectedError:
            continue
    return tuple(pairs)


def label_name_problem(name: str) -> str:
    """What is wrong with a label name, "" if nothing."""
    if not _LABEL_NAME.fullmatch(name):
        return "not a label name; use letters, digits and _, and start with a letter"
    if name.startswith("__"):
        return "label names that start with __ are Prometheus's own; choose another name"
    if name in OWN_LABELS:
        return "this label is set by the exporter itself; choose another name"
    return ""
