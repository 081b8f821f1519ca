"""Reads recordings: folders of pages named `*_<unixtime>.prom`, in the order they were taken."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvcache_exporter.errors import KVCacheError

# Nine digits or more: in `page_2.prom`, 2 is not a Unix time.
_NAME = re.compile(r"(?:(?P<number>\d+)_)?(?:(?P<phase>.*)_)?(?P<time>\d{9,})\.prom")


class RecordedPage(NamedTuple):
    """One page; sorts in the order it was recorded."""

    at: float
    """Unix seconds."""
    number: int
    target: str
    phase: str
    path: Path


def recorded_pages(folder: Path) -> list[RecordedPage]:
    """Pages of a folder, or of its subfolders as one target each; raises KVCacheError if there are none."""
    pages = sorted(_pages_of(folder, folder.resolve().name))
    if not pages:
        folders = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        pages = sorted(page for path in folders for page in _pages_of(path, path.name))
    if not pages:
        raise KVCacheError(
            f"{folder}: no recorded page found; expected files named like 001_load_1795950687.prom here, "
            "or one folder of them for each target"
        )
    return pages


def recorded_logs(folder: Path) -> list[Path]:
    """Usage logs recorded beside the pages: all files in folders named `logs` or `export`."""
    found = [path for name in ("logs", "export") for path in folder.glob(f"**/{name}/*") if path.is_file()]
    return sorted(found)


def _pages_of(folder: Path, target: str) -> Iterator[RecordedPage]:
    for path in folder.glob("*.prom"):
        match = _NAME.fullmatch(path.name)
        if match:
            yield RecordedPage(
                float(match["time"]), int(match["number"] or 0), target, match["phase"] or "", path
            )
