"""Rewrites the generated part of docs/direct.md; run it in the project's folder."""

from pathlib import Path

from kvcache_exporter.direct.document import document

page = Path("docs/direct.md")
page.write_text(document(page.read_text()))
