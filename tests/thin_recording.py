"""Thins recorded pages to what the engine tables read, for tests/fixtures and the demo.

python tests/thin_recording.py SOURCE_FOLDER TARGET_FOLDER [--boundaries] [--histograms KEEP,KEEP]
"""

import argparse
import re
import shutil
from itertools import groupby
from pathlib import Path

from kvcache_exporter.engines import ENGINES
from kvcache_exporter.engines.plugin import PLUGIN
from kvcache_exporter.scrape.select import wanted_names

_WANTED = wanted_names((*ENGINES, PLUGIN))
_EDGE = re.compile(rb'_bucket\{.*le="([^"]+)"')
# Enough edges for thresholds and quantiles of the small models that were recorded.
_LARGEST_TOKEN_EDGE = 3000.0


def thin_page(page: bytes, keep_histograms: bool) -> bytes:
    """Lines of wanted families with their comments; token histograms lose the edges far above any prompt."""
    kept: list[bytes] = []
    pending: list[bytes] = []
    for line in page.split(b"\n"):
        if line.startswith(b"#"):
            pending = [*(p for p in pending if p.split()[2:3] == line.split()[2:3]), line]
        elif line and re.split(rb"[{ ]", line, maxsplit=1)[0] in _WANTED and _keep(line, keep_histograms):
            kept += [*pending, line]
            pending = []
    return b"\n".join([*kept, b""])


def _keep(line: bytes, keep_histograms: bool) -> bool:
    edge = _EDGE.search(line)
    if edge is None or edge[1] == b"+Inf":
        return True
    if b"tokens" in line.split(b"{")[0]:
        return float(edge[1]) <= _LARGEST_TOKEN_EDGE
    return keep_histograms and float(edge[1]) <= 60.0


def boundary_pages(folder: Path) -> list[Path]:
    """The first and the last page of each phase, and each phase's last page before the next."""
    named = (p for p in folder.glob("*.prom") if re.search(r"_\d{9,}\.prom$", p.name))
    pages = sorted(p for p in named if not re.search(r"_probe(?!-start_|-end_)", p.name))
    phases = groupby(pages, key=lambda p: re.sub(r"^\d+_|(-start|-end)?_\d+\.prom$", "", p.name))
    chosen: list[Path] = []
    for _, found in phases:
        group = list(found)
        chosen += dict.fromkeys([group[0], group[-1]])
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--boundaries", action="store_true", help="only first and last pages of phases")
    parser.add_argument("--histograms", action="store_true", help="keep the buckets of time histograms")
    arguments = parser.parse_args()
    arguments.target.mkdir(parents=True, exist_ok=True)
    source: Path = arguments.source
    pages = boundary_pages(source) if arguments.boundaries else sorted(source.glob("*.prom"))
    for page in pages:
        thinned = thin_page(page.read_bytes(), arguments.histograms)
        (arguments.target / page.name).write_bytes(thinned)
    if (source / "truth.json").exists():
        shutil.copyfile(source / "truth.json", arguments.target / "truth.json")


if __name__ == "__main__":
    main()
