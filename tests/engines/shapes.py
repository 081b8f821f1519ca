"""Prints as JSON what wheels of vLLM say about the classes that the plugin meets: WHEEL...

Read from the sources in the wheels, without running them;
`tests/fixtures/plugin/vllm_shapes.json` was made by it.
"""

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

_STATS, _LOGGERS, _ENGINE = (
    "vllm/v1/metrics/stats.py",
    "vllm/v1/metrics/loggers.py",
    "vllm/v1/engine/__init__.py",
)


def shapes(wheel: str) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        stats, loggers, engine = (ast.parse(archive.read(name)) for name in (_STATS, _LOGGERS, _ENGINE))
    return {
        "finished_request": dict(_fields(_class(stats, "FinishedRequestStats"))),
        "finish_reason": {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in _class(engine, "FinishReason").body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        },
        "stat_logger": dict(_methods(_class(loggers, "StatLoggerBase"))),
    }


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _fields(found: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Names and defaults in order; no default is "required"."""
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, "required" if node.value is None else ast.literal_eval(node.value)


def _methods(found: ast.ClassDef) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in found.body:
        if isinstance(node, ast.FunctionDef):
            marks = [mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)]
            names = [argument.arg for argument in node.args.args]
            yield node.name, {"abstract": "abstractmethod" in marks, "arguments": names}


def main(wheels: list[str]) -> None:
    print(json.dumps({wheel.split("-")[1]: shapes(wheel) for wheel in wheels}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
