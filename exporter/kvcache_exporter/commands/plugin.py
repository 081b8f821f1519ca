"""`plugin`: writes the vLLM plugin as a folder or an archive, for images that you do not build yourself."""

import argparse
import sys
import zipfile
from pathlib import Path

from kvcache_exporter import __version__
from kvcache_exporter.commands.arguments import Subparsers

GROUP = "vllm.stat_logger_plugins"
NAME = "kvcache_outcomes"
FACTORY = "kvcache_exporter.plugin.vllm:CacheOutcomeLogger"
MODULES = (
    "__init__.py",
    "catalogue.py",
    "model.py",
    "plugin/__init__.py",
    "plugin/counters.py",
    "plugin/finished.py",
    "plugin/options.py",
    "plugin/series.py",
    "plugin/vllm.py",
    "requests/__init__.py",
    "requests/outcome.py",
)
"""Everything in this package that the plugin imports; import-linter and a test enforce it."""

_PACKAGE = Path(__file__).parents[1]
# The exporter's own distribution name, so that the plugin is loaded once where both are on the path.
_DIST_INFO = f"kvcache_exporter-{__version__}.dist-info"


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "plugin",
        help="write the vLLM plugin, to mount into the engine",
        epilog="Example: kvcache-exporter plugin --out kvcache-plugin.zip",
        description="Writes the plugin that counts requests and time to first token by cache outcome inside "
        "vLLM: a folder, or one file if the name ends in .zip (small enough for a ConfigMap). Put it on the "
        "engine's PYTHONPATH; nothing else is needed. In an image that you build, install kvcache-exporter "
        "instead.",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="D", help="the folder, or a file whose name ends in .zip"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out
    made = files()
    if out.suffix == ".zip":
        _write_archive(out, made)
    else:
        for name, text in made.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text)
    print(f"wrote {len(made)} files; start the engine with PYTHONPATH={out.resolve()}", file=sys.stderr)
    return 0


def files() -> dict[str, str]:
    """The plugin's files: content by path below the folder."""
    modules = {f"kvcache_exporter/{name}": (_PACKAGE / name).read_text() for name in MODULES}
    return {
        **modules,
        f"{_DIST_INFO}/METADATA": f"Metadata-Version: 2.1\nName: kvcache-exporter\nVersion: {__version__}\n",
        f"{_DIST_INFO}/entry_points.txt": f"[{GROUP}]\n{NAME} = {FACTORY}\n",
    }


def _write_archive(path: Path, made: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in made.items():
            # A fixed time, so that the same plugin always gives the same bytes (for a ConfigMap).
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
