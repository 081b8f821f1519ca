"""The shapes of the data: recording rules, alerts and the parameters that a user may set."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "number", "ratio", "duration", "severity", "edge", "switch", "names", "url", "matchers", "words"
]
SEVERITIES = ("critical", "warning", "info")
Rule = dict[str, object]
"""One rule as Prometheus reads it."""
Board = Literal[
    "kvcache-overview", "kvcache-pressure", "kvcache-cold-start", "kvcache-requests", "kvcache-exporter"
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that a user may set."""

    name: str
    default: str
    why: str
    """One sentence on where the default comes from."""
    kind: Kind = "number"


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A recorded series named level:metric:operations."""

    record: str
    expr: str
    about: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One rule of an alert; most have one, some a second one that is more urgent."""

    expr: str
    """A template of PromQL: `$floor` stands for the parameter floor."""
    prefix: str = ""
    """Prefix of the names of its parameters `for` and `severity`."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; runbook, board link, severity and common labels are added by `mappers`."""

    name: str
    fires: str
    """What it means, for docs/alerts.md."""
    summary: str
    description: str
    """Prometheus's templates; `{floor}` in single braces stands for the parameter floor."""
    board: Board
    conditions: tuple[Condition, ...]
    parameters: tuple[Parameter, ...]


def hold(default: str, why: str, prefix: str = "") -> Parameter:
    return Parameter(f"{prefix}for", default, why, "duration")


def severity(default: str, why: str, prefix: str = "") -> Parameter:
    return Parameter(f"{prefix}severity", default, why, "severity")
