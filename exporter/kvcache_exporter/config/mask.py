"""The configuration in force as YAML, without secrets."""

import dataclasses
import types
import typing
from typing import Any

import yaml

from kvcache_exporter.config.load import section_hints
from kvcache_exporter.config.schema import Config
from kvcache_exporter.config.section import Section


def masked(config: Config) -> str:
    """The configuration with its defaults; secrets appear only as the paths of their files."""
    return yaml.safe_dump(_section(config), sort_keys=False, allow_unicode=True)


def _section(section: Section) -> dict[str, Any]:
    hints = section_hints(type(section))
    shown = {name: _shown(getattr(section, name), hint) for name, hint in hints.items()}
    return {name: value for name, value in shown.items() if value not in (None, (), [], {}, "")}


def _shown(value: Any, hint: Any) -> Any:
    if value is None:
        return None
    if dataclasses.is_dataclass(value):
        return _section(typing.cast("Section", value))
    if typing.get_origin(hint) is typing.Annotated:
        base, mark = typing.get_args(hint)
        return mark.show(value) if hasattr(mark, "show") else _shown(value, base)
    if typing.get_origin(hint) is types.UnionType:
        return value
    return [_shown(item, typing.get_args(hint)[0]) for item in value]
