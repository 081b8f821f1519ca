"""Writes the committed rule files anew: python -m kvcache_alerts FOLDER."""

import sys
from pathlib import Path

from kvcache_alerts.write import files

for name, text in files({}).items():
    Path(sys.argv[1], name).write_text(text)
