"""The shapes of the data: recording rules, alerts and the parameters that a user may set."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
Kind = Literal["number", "duration", "text"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that a user may set; `why` says in one sentence where the default comes from."""

    name: str
    default: str
    why: str
    kind: Kind = "number"


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A recorded series named level:metric:operations."""

    record: str
    expr: str
    about: str
