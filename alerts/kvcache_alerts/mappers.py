"""The parts that are the same for every alert: severity, common labels, links and values in texts."""

import re
from collections.abc import Mapping

from kvcache_alerts.model import Alert, Condition
from kvcache_alerts.parameters import Settings, seconds
from kvcache_alerts.promql import fill
from kvcache_exporter.catalogue import SECONDS_BUCKETS

_LINKED = ("namespace", "model_name", "target")


def rule(alert: Alert, condition: Condition, settings: Settings) -> dict[str, object]:
    """One alerting rule in Prometheus's format."""
    values = settings.of(alert)
    links = {**settings.values, "keep_links": "".join(map(keep_link, _kept(settings)))}
    expression = fill(condition.expr, {**common(settings), **_for_promql(values)})
    return shaped(alert, condition, expression, values, links=links, extra_labels=settings.extra_labels)


def shaped(
    alert: Alert,
    condition: Condition,
    expression: str,
    values: Mapping[str, str],
    *,
    links: Mapping[str, str],
    extra_labels: Mapping[str, str],
) -> dict[str, object]:
    """An alerting rule; `links` has `runbook_base`, `dashboard_base` and `keep_links`."""
    return {
        "alert": alert.name,
        "expr": expression,
        "for": values[f"{condition.prefix}for"],
        "labels": {"severity": values[f"{condition.prefix}severity"], **extra_labels},
        "annotations": {
            "summary": alert.summary,
            "description": _with_values(alert.description, values),
            "runbook_url": f"{links['runbook_base'].rstrip('/')}/{alert.name}.md",
            "dashboard_url": f"{links['dashboard_base'].rstrip('/')}/d/{alert.board}?from=now-3h&to=now"
            + links["keep_links"]
            + "".join(map(keep_link, _LINKED)),
        },
    }


def keep_link(label: str) -> str:
    """The part of a board's URL that sets the variable of this name to the alert's label."""
    return f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}"


def objective_edge(edge: float) -> str:
    """A pattern for the bucket's label: Prometheus 2 keeps an edge as it is exposed, 3 writes 1 as 1.0."""
    text = f"{edge:g}"
    return text.replace(".", "[.]") if "." in text else f"{text}([.]0)?"


def common(settings: Settings) -> dict[str, str]:
    return {"keep": ", ".join(_kept(settings)), "selector": settings.values["job_selector"]}


def _for_promql(values: Mapping[str, str]) -> dict[str, str]:
    """The values, with durations also in seconds, and the objective also as its bucket's label."""
    found = dict(values)
    found |= {f"{name}_seconds": f"{seconds(value):g}" for name, value in values.items()}
    if "objective" in values and float(values["objective"]) in SECONDS_BUCKETS:
        found["objective_edge"] = objective_edge(float(values["objective"]))
    return found


def _kept(settings: Settings) -> list[str]:
    return re.findall(r"\w+", settings.values["keep_labels"])


def _with_values(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"(?<!\{)\{(\w+)\}(?!\})", lambda found: values.get(found[1], found[0]), text)
