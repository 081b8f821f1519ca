"""Regenerates these parts, or compares them with `--check`; run as `python -m kvcache_chart`."""

import sys
from pathlib import Path

from kvcache_chart.files import CHART, files

is_check = sys.argv[1:] == ["--check"]
stale = []
for name, text in files(CHART).items():
    path = Path(CHART, name)
    if is_check:
        stale += [] if path.exists() and path.read_text() == text else [name]
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
if stale:
    sys.exit(f"{', '.join(stale)} in {CHART}: stale; run `make generate`")
