"""The overview in a real browser: Grafana's own panels draw the recording from a real Prometheus."""

import shutil
from pathlib import Path

import pytest
from stage import played

from browser.page import browser_page, page_server, show
from kvcache_dashboards.write import files as board_files

PAGE = Path(__file__).parents[1] / "browser" / "dist" / "index.html"
UID = "kvcache-overview"
# Panels that are empty when all is well, with the reason.
MAY_BE_EMPTY = {"Who is cold": "both replicas may be warm again when the recording stops"}


def _missing() -> str:
    if not shutil.which("chromium"):
        return "chromium is not installed"
    return "" if PAGE.exists() else "the page is not built"


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(_missing()), reason=f"{_missing()}: `make browser` does it"),
]


def test_every_panel_of_the_overview_is_drawn_with_data_and_without_an_error(tmp_path: Path) -> None:
    errors: list[str] = []
    with (
        played(tmp_path, speed=7.0, until=240.0) as stage,
        page_server(board_files({}), stage.url) as url,
        browser_page(height=2400) as page,
    ):
        page.on("pageerror", lambda error: errors.append(str(error)))
        panels = show(page, url, UID, stage.span)
        drawn = page.inner_text("body")
    assert not errors
    assert [panel for panel in panels if panel.errors] == []
    assert {panel.title for panel in panels if not panel.values} <= MAY_BE_EMPTY.keys()
    assert [panel.title for panel in panels if panel.title not in drawn] == []
    assert len(panels) >= 15
