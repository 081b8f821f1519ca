"""The types of recording rules, alerts and their parameters."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "number", "ratio", "duration", "severity", "edge", "switch", "names", "url", "matchers", "words"
]
SEVERITIES = ("critical", "warning", "info")
Rule = dict[str, object]
"""One rule in Prometheus's format."""
Board = Literal[
    "kvcache-overview", "kvcache-pressure", "kvcache-cold-start", "kvcache-requests", "kvcache-exporter"
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that users may set."""

    name: str
    default: str
    why: str
    """The reason for the default, in one sentence."""
    kind: Kind = "number"


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A recorded series named level:metric:operations."""

    record: str
    expr: str
    about: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One rule of an alert; some alerts have a second, more urgent one."""

    expr: str
    """A template of PromQL: `$floor` stands for the parameter floor."""
    prefix: str = ""
    """Prefix of its parameters `for` and `severity`."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; runbook, board link, severity and common labels are added by `mappers`."""

    name: str
    fires: str
    """When it fires, for docs/alerts.md."""
    summary: str
    description: str
    """A Prometheus template; `{floor}` in single braces stands for the parameter floor."""
    board: Board
    conditions: tuple[Condition, ...]
    parameters: tuple[Parameter, ...]


def hold(default: str, why: str, prefix: str = "") -> Parameter:
    return Parameter(f"{prefix}for", default, why, "duration")


def severity(default: str, why: str, prefix: str = "") -> Parameter:
    return Parameter(f"{prefix}severity", default, why, "severity")
