"""What every alert gets in the same way: severity, common labels, links and values in its text."""

import re
from collections.abc import Mapping

from kvcache_alerts.model import Alert, Condition
from kvcache_alerts.parameters import Settings, seconds
from kvcache_alerts.promql import fill
from kvcache_exporter.catalogue import SECONDS_BUCKETS

_LINKED = ("namespace", "model_name", "target")


def rule(alert: Alert, condition: Condition, settings: Settings) -> dict[str, object]:
    """One rule as Prometheus reads it."""
    values = settings.of(alert)
    return {
        "alert": alert.name,
        "expr": fill(condition.expr, {**common(settings), **_for_promql(values)}),
        "for": values[f"{condition.prefix}for"],
        "labels": {"severity": values[f"{condition.prefix}severity"], **settings.extra_labels},
        "annotations": {
            "summary": alert.summary,
            "description": _with_values(alert.description, values),
            "runbook_url": f"{settings.values['runbook_base'].rstrip('/')}/{alert.name}.md",
            "dashboard_url": _dashboard_url(alert, settings),
        },
    }


def common(settings: Settings) -> dict[str, str]:
    keep = ", ".join(re.findall(r"\w+", settings.values["keep_labels"]))
    return {"keep": keep, "selector": settings.values["job_selector"]}


def _for_promql(values: Mapping[str, str]) -> dict[str, str]:
    """Durations also as seconds, to compare them with values, and the objective as its bucket's label."""
    found = dict(values)
    found |= {f"{name}_seconds": f"{seconds(value):g}" for name, value in values.items()}
    if "objective" in values and float(values["objective"]) in SECONDS_BUCKETS:
        edge = f"{float(values['objective']):g}"
        # Prometheus 2 keeps an edge as it is written, Prometheus 3 writes 1 as 1.0.
        found["objective_edge"] = edge.replace(".", "[.]") if "." in edge else f"{edge}([.]0)?"
    return found


def _with_values(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"(?<!\{)\{(\w+)\}(?!\})", lambda found: values.get(found[1], found[0]), text)


def _dashboard_url(alert: Alert, settings: Settings) -> str:
    keep = re.findall(r"\w+", settings.values["keep_labels"])
    variables = "".join(
        f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}"
        for label in (*keep, *_LINKED)
    )
    return f"{settings.values['dashboard_base'].rstrip('/')}/d/{alert.board}?from=now-3h&to=now{variables}"
