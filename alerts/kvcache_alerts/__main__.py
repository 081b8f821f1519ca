"""Writes the committed files anew, in the project's folder: python -m kvcache_alerts."""

from pathlib import Path

from kvcache_alerts.document import document
from kvcache_alerts.write import files

for name, text in files({}).items():
    Path("alerts/generated", name).write_text(text)
Path("docs/alerts.md").write_text(document())
