"""Regenerates these parts; run as `python -m kvcache_chart` in the project's folder."""

from pathlib import Path

from kvcache_chart.files import CHART, files

for name, text in files(CHART).items():
    path = Path(CHART, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
