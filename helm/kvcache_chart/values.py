"""The parts of values.yaml and of its schema with the parameters of the rules."""

import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import yaml

from kvcache_alerts.model import SEVERITIES, Kind, Parameter
from kvcache_alerts.parameters import GLOBAL, LABEL, PATTERNS, own
from kvcache_alerts.write import ALERTS
from kvcache_chart.readme import documented
from kvcache_exporter.catalogue import SECONDS_BUCKETS
from kvcache_exporter.config.kinds import NonEmpty, Unique
from kvcache_exporter.config.load import section_hints
from kvcache_exporter.config.schema import Config

Schema = dict[str, Any]
_ALERT_NAMES = {alert.name for alert in ALERTS}
BEGIN, END = "  # BEGIN GENERATED", "  # END GENERATED"
# To `helm --set` whole numbers are numbers, all others are texts.
_NUMBER: Schema = {"type": ["number", "string"], "minimum": 0}
_SCHEMAS: Mapping[Kind, Schema] = {
    "number": _NUMBER | {"pattern": r"^\d+(\.\d+)?$"},
    "ratio": _NUMBER | {"maximum": 1, "pattern": r"^(0(\.\d+)?|1(\.0+)?)$"},
    "severity": {"enum": list(SEVERITIES)},
    "edge": {"enum": [*SECONDS_BUCKETS, *map(str, SECONDS_BUCKETS)]},
    "switch": {"type": "boolean"},
    "names": {"type": "array", "items": {"type": "string", "pattern": f"^{LABEL}$"}},
}


def values(text: str) -> str:
    """values.yaml with its generated part replaced."""
    head, _, rest = text.partition(BEGIN)
    first_line, _, rest = rest.partition("\n")
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{first_line}\n{''.join(_lines())}{END}{tail}"


def schema(text: str, values_text: str) -> str:
    """values.schema.json with its generated parts replaced.

    These are parameters of alerts, keys of the configuration, and from values.yaml the comments as
    descriptions and the required values.
    """
    document = json.loads(text)
    properties = document["properties"]
    properties["config"] = _closed({key: _keys(hint) for key, hint in section_hints(Config).items()})
    rules = properties["prometheusRule"]["properties"]
    rules |= {name: _schema(p) for name, p in _global_parameters()}
    rules["alerts"] = _closed({a.name: _closed({p.name: _schema(p) for p in own(a)}) for a in ALERTS})
    for value in documented(values_text):
        _place(document, value.path)["description"] = value.about
    _require(document, yaml.safe_load(values_text))
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _keys(hint: Any) -> Schema:
    """Which keys a part of the configuration has. Values may be templates and are the exporter's to judge."""
    if typing.get_origin(hint) is typing.Annotated:
        hint, mark = typing.get_args(hint)
        if not isinstance(mark, Unique | NonEmpty):
            return {}
    if typing.get_origin(hint) is tuple:
        return {"items": _keys(typing.get_args(hint)[0])}
    if typing.get_origin(hint) is types.UnionType:
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    keys = {key: _keys(part) for key, part in section_hints(hint).items()}
    return {"additionalProperties": False, "properties": keys}


def _place(document: Schema, path: tuple[str, ...]) -> Schema:
    for key in path:
        document = document["properties"][key]
    return document


def _global_parameters() -> Iterator[tuple[str, Parameter]]:
    for parameter in GLOBAL:
        yield re.sub(r"_(\w)", lambda found: found[1].upper(), parameter.name), parameter


def _lines() -> Iterator[str]:
    for name, parameter in _global_parameters():
        yield f"  # -- {parameter.why}\n  {name}: {_default(parameter)}\n"
    yield "  # -- Values of each alert, such as `KVCacheUsageHigh.usage`; docs/alerts.md has all of them.\n"
    yield "  alerts:\n"
    for alert in ALERTS:
        yield f"    {alert.name}:\n"
        for parameter in own(alert):
            yield f"      # -- {parameter.why}\n      {parameter.name}: {_default(parameter)}\n"


def _default(parameter: Parameter) -> str:
    if parameter.kind == "names":
        return f"[{parameter.default}]"
    return parameter.default or '""'


def _schema(parameter: Parameter) -> Schema:
    known = _SCHEMAS.get(parameter.kind)
    return dict(known) if known else {"type": "string", "pattern": f"^({PATTERNS[parameter.kind]})$"}


def _require(part: Schema, defaults: Mapping[str, Any]) -> None:
    """Helm removes values that are set to null, so what may not be empty is required."""
    properties = part["properties"]
    for name, default in defaults.items():
        if isinstance(default, dict) and "properties" in properties[name]:
            _require(properties[name], default)
    needed = [
        name
        for name, default in defaults.items()
        # An alert that is set to null is off.
        if name not in _ALERT_NAMES and not _may_be_empty(properties[name], default)
    ]
    part.pop("required", None)
    part |= {"required": needed} if needed else {}


def _may_be_empty(part: Schema, default: Any) -> bool:
    empty = type(default)() if isinstance(default, str | list | dict) else None
    return bool(jsonschema.Draft7Validator(part).is_valid(empty))


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}
