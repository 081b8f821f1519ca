"""Kinds of single values in the configuration: how each is read, shown and named."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from yaml.nodes import Node

from kvcache_exporter.config.address import EXPECTED as ADDRESS_EXPECTED
from kvcache_exporter.config.address import is_url_path, parse_address
from kvcache_exporter.config.document import Document, did_you_mean, quote

_TIMES = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_TRUTH = {"true": True, "false": False}


class Kind(Protocol):
    """One kind of value; the annotations of the schema hold instances."""

    label: str
    """Its name in the documentation."""

    def read(self, document: Document, node: Node, path: str) -> Any:
        """The value; reports a problem and then raises RejectedError."""
        ...

    def show(self, value: Any) -> Any:
        """The value as YAML data that reads back as the same value."""
        ...


def as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Scalar:
    """Text that `parse` turns into a value, or None if it cannot."""

    label: str
    expected: str
    parse: Callable[[str], Any]
    show: Callable[[Any], Any] = as_it_is

    def read(self, document: Document, node: Node, path: str) -> Any:
        value = self.parse(document.scalar(node, path, self.expected))
        if value is None:
            raise document.unexpected(node, path, self.expected)
        return value


@dataclass(frozen=True)
class Choice:
    """One word of a closed set: `words`, or the document's choices for the label."""

    label: str
    words: tuple[str, ...] = ()

    def read(self, document: Document, node: Node, path: str) -> str:
        words = self.words or tuple(sorted(document.choices[self.label]))
        expected = f"one of {', '.join(words)}"
        text = document.scalar(node, path, expected)
        if text not in words:
            raise document.unexpected(node, path, expected + did_you_mean(text, words))
        return text

    def show(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class FilePath:
    """A path, relative to the folder of the configuration file."""

    label: str
    must_exist: bool = False

    def read(self, document: Document, node: Node, path: str) -> str:
        text = document.scalar(node, path, "the path of a file")
        if not text:
            raise document.unexpected(node, path, "the path of a file")
        resolved = document.folder / text
        if self.must_exist:
            self._check(document, node, path, resolved)
        return str(resolved)

    def _check(self, document: Document, node: Node, path: str, file: Path) -> None:
        shown = quote(str(file), limit=4096)
        if not file.exists():
            document.report(node, path, f"the file {shown} does not exist; create it or correct the path")
        elif not file.is_file():
            document.report(node, path, f"{shown} is not a file; correct the path")
        elif not os.access(file, os.R_OK):
            document.report(node, path, f"the file {shown} cannot be read; give this user access to it")

    def show(self, value: str) -> str:
        return value


def integer(low: int, high: int) -> Scalar:
    def parse(text: str) -> int | None:
        return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) and low <= int(text) <= high else None

    return Scalar("integer", f"an integer from {low} to {high}", parse)


def share() -> Scalar:
    def parse(text: str) -> float | None:
        return float(text) if re.fullmatch(r"0|0\.\d{1,12}|1(\.0{1,12})?", text, re.ASCII) else None

    return Scalar("number", "a number from 0 to 1", parse)


@dataclass(frozen=True)
class Quantity:
    """A whole number with a unit, kept in the base unit."""

    label: str
    example: str
    units: Mapping[str, float]
    """Size of each unit in the base unit, largest first."""
    low: float
    high: float

    def read(self, document: Document, node: Node, path: str) -> float:
        text = document.scalar(node, path, self.example)
        match = re.fullmatch(r"(\d{1,12})([A-Za-z]{1,3})", text, re.ASCII)
        if match is None or match[2] not in self.units:
            raise document.unexpected(node, path, self.example)
        value = int(match[1]) * self.units[match[2]]
        if not self.low <= value <= self.high:
            raise document.unexpected(
                node, path, f"a {self.label} from {self.show(self.low)} to {self.show(self.high)}"
            )
        return value

    def show(self, value: float) -> str:
        smallest = list(self.units)[-1]
        for unit, factor in self.units.items():
            count = round(value / factor)
            if count and abs(count * factor - value) < self.units[smallest] / 2:
                return f"{count}{unit}"
        return f"0{smallest}"


def duration(low: float, high: float) -> Quantity:
    return Quantity("duration", "a duration such as 15s, 5m or 1h", _TIMES, low, high)


def size(low: int, high: int) -> Quantity:
    return Quantity("size", "a size such as 512KiB or 16MiB", _SIZES, low, high)


@dataclass(frozen=True)
class AddressText:
    """A target's address, kept as written."""

    label: str = "address"

    def read(self, document: Document, node: Node, path: str) -> str:
        text = document.scalar(node, path, ADDRESS_EXPECTED)
        try:
            parse_address(text)
        except ValueError as error:
            raise document.reject(node, path, str(error)) from None
        return text

    def show(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class Unique:
    """Marks a list whose items must have different values of this attribute."""

    attribute: str


class NonEmpty:
    """Marks a list that must not be empty."""


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


DATE = Scalar("date", "a date such as 2026-11-29", _date)
TEXT = Scalar("text", "text", as_it_is)
NAME = Scalar("text", "text that is not empty", lambda text: text or None)
BOOLEAN = Scalar("boolean", "true or false", _TRUTH.get)
FILE = FilePath("path")
SECRET_FILE = FilePath("path", must_exist=True)
URL_PATH = Scalar("URL path", "a path such as /metrics", lambda text: text if is_url_path(text) else None)
