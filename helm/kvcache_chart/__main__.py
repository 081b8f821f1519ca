"""Writes the generated parts of the chart anew, in the project's folder: python -m kvcache_chart."""

from pathlib import Path

from kvcache_chart.files import CHART, files

for name, text in files(CHART).items():
    path = Path(CHART, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
