"""What the distribution declares: everything that the code imports, and nothing that it does not."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import kvcache_exporter

ROOT = Path(__file__).parents[1]
OURS = {"kvcache_exporter", "kvcache_dashboards", "kvcache_alerts"}
ENGINE = {"vllm"}
"""Imported only where the engine has installed it."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _declared() -> set[str]:
    listed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["kafka"]]
    return {_canonical(re.split(r"[<>=!~\[; ]", line)[0]) for line in listed}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported_modules() -> Iterator[str]:
    for source in (ROOT / folder for folder in ("exporter", "dashboards", "alerts")):
        for path in source.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _distributions(modules: Iterator[str]) -> set[str]:
    providers = importlib.metadata.packages_distributions()
    tops = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names - OURS - ENGINE
    # Names that several distributions share.
    shared = {"google": {"protobuf"}, "opentelemetry": {"opentelemetry-proto"}, "lightkube": {"lightkube"}}
    return {_canonical(name) for top in tops for name in shared.get(top) or providers[top]}


def test_every_import_is_declared_and_nothing_else() -> None:
    assert _distributions(_imported_modules()) == _declared()


def test_the_package_exports_its_version_and_nothing_else() -> None:
    assert kvcache_exporter.__all__ == ["__version__"]
    assert kvcache_exporter.__version__ == importlib.metadata.version("kvcache-exporter")


def test_types_are_shipped() -> None:
    for source in ("exporter/kvcache_exporter", "dashboards/kvcache_dashboards", "alerts/kvcache_alerts"):
        assert (ROOT / source / "py.typed").is_file()
