"""The page's scripts and styles, each at a path that contains the hash of its content."""

from hashlib import sha256
from pathlib import Path

from kvcache_exporter.web import Asset

_FOLDER = Path(__file__).parent
_FILES = {
    "uPlot.js": ("vendor/uplot/uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "uPlot.css": ("vendor/uplot/uPlot.min.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
}


def _load() -> tuple[dict[str, Asset], dict[str, str]]:
    assets, paths = {}, {}
    for name, (file, kind) in _FILES.items():
        body = (_FOLDER / file).read_bytes()
        path = f"{sha256(body).hexdigest()[:16]}/{name}"
        assets[path], paths[name] = Asset(kind, body), path
    return assets, paths


ASSETS, PATHS = _load()
"""The assets by path below `/assets/`, and those paths by name."""
