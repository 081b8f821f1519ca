"""Parameters that are common to all alerts, and the validation of values.

Keys are those below, `extra_labels.<name>`, and `<AlertName>.<parameter>` for every parameter of an alert;
each alert also has `<AlertName>.enabled`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kvcache_alerts.model import SEVERITIES, Alert, Kind, Parameter
from kvcache_exporter.catalogue import SECONDS_BUCKETS

EXTRA_LABELS = "extra_labels."
GLOBAL = (
    Parameter(
        "runbook_base",
        "https://github.com/kvcache-exporter/kvcache-exporter/blob/main/alerts/runbooks",
        "The runbooks of this repository; set it to your own copy.",
        "url",
    ),
    Parameter(
        "dashboard_base", "http://localhost:3000", "Grafana's own default address; set it to yours.", "url"
    ),
    Parameter("job_selector", "", "All metrics are named kvcache_ already.", "matchers"),
    Parameter("keep_labels", "cluster", "The label by which several clusters share one Prometheus.", "names"),
    Parameter(
        "interval", "30s", "Twice per usual scrape interval of a minute, with room for bursts.", "duration"
    ),
)
DIRECT = (
    Parameter(
        "target_label",
        "instance",
        "Labels of the scrape that name a process, joined by slashes: on Kubernetes namespace, pod.",
        "names",
    ),
    Parameter(
        "engine_selector", "", "Engines' own names are found anywhere; job=~... makes it cheaper.", "matchers"
    ),
    Parameter("engines", "", "All tables; vllm alone makes shorter rules.", "words"),
)
"""Parameters of the rules that read engines' own pages."""
_ENABLED = Parameter("enabled", "true", "All alerts are on.", "switch")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
_MATCHER = rf'{LABEL}\s*(=|!=|=~|!~)\s*"([^"\\]|\\.)*"'
PATTERNS: Mapping[Kind, str] = {
    "duration": r"(\d+(ms|s|m|h|d|w|y))+",
    "names": rf"({LABEL}(, ?{LABEL})*)?",
    "words": r"([a-z][a-z0-9-]*(, ?[a-z][a-z0-9-]*)*)?",
    "url": r"https?://[^\s{}\"]+",
    "matchers": rf"({_MATCHER}(,\s*{_MATCHER})*)?",
}
"""Patterns of the kinds of values, in the syntax that Python, Go and JSON Schema share."""


def seconds(duration: str) -> float:
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)(ms|[smhdwy])", duration))


def _is_number(text: str, most: float = float("1e308")) -> bool:
    return bool(re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+", text)) and float(text) <= most


def _is_edge(text: str) -> bool:
    return _is_number(text) and float(text) in SECONDS_BUCKETS


_CHECKS: Mapping[Kind, tuple[Callable[[str], object], str]] = {
    "number": (_is_number, "a number from 0, such as 0.05"),
    "ratio": (lambda text: _is_number(text, 1.0), "a number from 0 to 1, such as 0.3"),
    "duration": (re.compile(PATTERNS["duration"]).fullmatch, "a Prometheus duration, such as 10m"),
    "severity": (SEVERITIES.__contains__, f"one of {', '.join(SEVERITIES)}"),
    "edge": (_is_edge, f"a bucket edge in seconds, one of {', '.join(f'{e:g}' for e in SECONDS_BUCKETS)}"),
    "switch": (("true", "false").__contains__, "true or false"),
    "names": (
        re.compile(PATTERNS["names"]).fullmatch,
        "label names with commas, such as cluster",
    ),
    "words": (re.compile(PATTERNS["words"]).fullmatch, "names with commas, such as vllm, sglang"),
    "url": (re.compile(PATTERNS["url"]).fullmatch, "an address that begins with http:// or https://"),
    "matchers": (re.compile(PATTERNS["matchers"]).fullmatch, 'matchers, such as job="kvcache"'),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All values, with the user's overrides applied."""

    values: Mapping[str, str]
    extra_labels: Mapping[str, str]

    def of(self, alert: Alert) -> dict[str, str]:
        """An alert's parameters by name."""
        return {p.name: self.values[f"{alert.name}.{p.name}"] for p in own(alert)}

    def enabled(self, alert: Alert) -> bool:
        return self.values[f"{alert.name}.enabled"] == "true"


def own(alert: Alert) -> tuple[Parameter, ...]:
    return (*alert.parameters, _ENABLED)


def settings(
    alerts: Iterable[Alert], overrides: Mapping[str, str], more: Iterable[Parameter] = ()
) -> Settings:
    """Defaults with the overrides applied; raises ValueError for an unknown key or an invalid value."""
    known = {p.name: p for p in (*GLOBAL, *more)} | {f"{a.name}.{p.name}": p for a in alerts for p in own(a)}
    values, extra = {key: p.default for key, p in known.items()}, {}
    for key, value in overrides.items():
        if key.startswith(EXTRA_LABELS):
            extra[_extra_label(key)] = value
            continue
        if key not in known:
            raise ValueError(f"{key}: unknown parameter{_advice(key, known)}")
        check, expected = _CHECKS[known[key].kind]
        if not check(value):
            raise ValueError(f"{key}: {value!r} is not {expected}")
        values[key] = value
    return Settings(values, extra)


def _extra_label(key: str) -> str:
    name = key.removeprefix(EXTRA_LABELS)
    if not re.fullmatch(LABEL, name) or name in ("severity", "alertname"):
        raise ValueError(f"{key}: {name!r} cannot be a label to add; use a name such as extra_labels.team")
    return name


def _advice(key: str, known: Mapping[str, Parameter]) -> str:
    alert = key.partition(".")[0]
    if mine := [k for k in known if k.startswith(f"{alert}.")]:
        return f"; {alert} has {', '.join(k.partition('.')[2] for k in mine)}"
    near = get_close_matches(key, known, 1) or get_close_matches(
        alert, [k.partition(".")[0] for k in known], 1
    )
    general = ", ".join(p.name for p in GLOBAL)
    return (
        f"; did you mean {near[0]}?"
        if near
        else f"; there are {general}, extra_labels.<name>, <Alert>.<name>"
    )
