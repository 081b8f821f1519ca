"""The page's HTML from a summary: complete without a script."""

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kvcache_exporter.builtin_page import formats
from kvcache_exporter.builtin_page.assets import PATHS
from kvcache_exporter.builtin_page.notices import notices
from kvcache_exporter.builtin_page.terms import TERMS
from kvcache_exporter.catalogue import PHASES, WINDOWS
from kvcache_exporter.model import OUTCOMES
from kvcache_exporter.summary.figures import Scope
from kvcache_exporter.summary.schema import Summary
from kvcache_exporter.summary.tables import FULL

_DOCS = "https://github.com/kvcache-exporter/kvcache-exporter/blob/main"
_CHART_WINDOW = "5m"
_DOWN_SHOWN = 10
_FILTERS = (
    formats.absent,
    formats.at_most,
    formats.brief,
    formats.by_requests,
    formats.clock,
    formats.count,
    formats.duration,
    formats.evicted,
    formats.evicted_blocks,
    formats.gap,
    formats.number,
    formats.percent,
    formats.rate,
    formats.saved,
    formats.size,
    formats.spent,
    formats.stored_blocks,
    formats.usage,
    formats.without_cache,
)


def page(summary: Summary) -> bytes:
    """The whole page, of the fleet or of the model whose history the summary has."""
    model = summary.history.model_name
    scope = next((s for s in summary.models.shown if s.model_name == model), summary.fleet)
    html = _TEMPLATE.render(
        summary=summary,
        scope=scope,
        model=model,
        notices=list(notices(summary)),
        uptime=summary.generated_at - summary.exporter.started_at,
        data=_data(summary, scope),
    )
    return html.encode()


def _data(summary: Summary, scope: Scope) -> Markup:
    """The charts' data as JSON that cannot close its HTML element."""
    engines, requests, events = scope.engines, scope.requests, scope.events
    charts = {
        "generated_at": summary.generated_at,
        "has": {
            "engines": bool(engines),
            "requests": bool(requests),
            "ttft": bool(requests and requests.ttft["1h"]),
            "events": bool(events),
        },
        "history": summary.history,
        "outcomes": requests.ttft[_CHART_WINDOW] if requests else {},
        "phases": engines.ttft["1h"] if engines else {},
    }
    text = msgspec.json.encode(charts).decode()
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 -- JSON without "<" holds no markup


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kvcache_exporter.builtin_page", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {each.__name__: each for each in _FILTERS}
    environment.globals |= {
        "asset": PATHS,
        "docs": _DOCS,
        "windows": tuple(WINDOWS),
        "outcomes": OUTCOMES,
        "phases": PHASES,
        "down_shown": _DOWN_SHOWN,
        "terms": TERMS,
        "full": FULL,
        "no_traffic": formats.NO_TRAFFIC,
        "not_reported": formats.NOT_REPORTED,
        "no_values": (formats.NO_TRAFFIC, formats.NOT_REPORTED, formats.NO_PRICE),
    }
    return environment


_TEMPLATE = _environment().get_template("page.html.jinja")
