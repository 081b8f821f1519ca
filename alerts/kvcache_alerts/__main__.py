"""Regenerates the committed files; run as `python -m kvcache_alerts` in the project's folder."""

from pathlib import Path

from kvcache_alerts.document import document
from kvcache_alerts.write import files

for name, text in files({}).items():
    Path("alerts/generated", name).write_text(text)
Path("docs/alerts.md").write_text(document())
