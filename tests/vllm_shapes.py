"""Classes of the shapes that versions of vLLM have, by its wheels: vLLM itself takes gigabytes."""

import enum
import json
import sys
from abc import ABC, abstractmethod
from dataclasses import field, make_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_RECORDED = json.loads((Path(__file__).parent / "fixtures" / "plugin" / "vllm_shapes.json").read_text())
VERSIONS: tuple[str, ...] = tuple(_RECORDED)
NEWEST = VERSIONS[-1]


def finished_class(version: str) -> Any:
    """A dataclass with the fields and defaults of `FinishedRequestStats`."""
    fields: dict[str, Any] = _RECORDED[version]["finished_request"]
    return make_dataclass(
        "FinishedRequestStats",
        [
            (name, Any) if default == "required" else (name, Any, field(default=default))
            for name, default in fields.items()
        ],
    )


def finish_reasons(version: str) -> Any:
    return enum.IntEnum("FinishReason", _RECORDED[version]["finish_reason"])


def stat_logger_base(version: str, *also_abstract: str) -> type:
    """With the methods of `StatLoggerBase`; `also_abstract` are those of a version to come."""
    methods = {name: shape["abstract"] for name, shape in _RECORDED[version]["stat_logger"].items()}
    members: dict[str, Any] = {}
    for name, is_abstract in (methods | dict.fromkeys(also_abstract, True)).items():
        members[name] = abstractmethod(_does_nothing()) if is_abstract else _does_nothing()
    return type("StatLoggerBase", (ABC,), members)


def install(version: str, *also_abstract: str) -> None:
    """Makes `from vllm.v1.metrics.loggers import StatLoggerBase` work in this process."""
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.metrics.loggers"):
        sys.modules[name] = ModuleType(name)
    loggers: Any = sys.modules["vllm.v1.metrics.loggers"]
    loggers.StatLoggerBase = stat_logger_base(version, *also_abstract)


def config(model_name: str, block_size: int | None = 16) -> Any:
    """What the plugin reads of `VllmConfig`."""
    return SimpleNamespace(
        model_config=SimpleNamespace(served_model_name=model_name, model="/models/it"),
        cache_config=SimpleNamespace(block_size=block_size),
    )


def iteration(*finished: Any) -> Any:
    return SimpleNamespace(finished_requests=list(finished))


def _does_nothing() -> Any:
    def method(*_: Any, **__: Any) -> None:
        pass

    return method
