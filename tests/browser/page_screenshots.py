"""Takes the pictures of the built-in page for docs/images: the playing demo, light, dark and on a phone."""

import argparse
import time
from pathlib import Path
from typing import Any

from demo import playing

from browser.page import chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_SCHEMES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1400, "height": 900}},
    "dark": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 1500}, "device_scale_factor": 2},
}
_SPEED = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    # By then one engine is full and preempts, the other has just come back from a restart.
    parser.add_argument("--until", type=float, default=124.0, help="second of the recording to stop at")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the pictures")
    arguments = parser.parse_args()
    with playing(_SPEED) as url, chromium() as browser:
        began = time.monotonic()
        pages = {name: browser.new_context(**options).new_page() for name, options in _SCHEMES.items()}
        for page in pages.values():
            page.goto(url)
        while (time.monotonic() - began) * _SPEED < arguments.until:
            next(iter(pages.values())).wait_for_timeout(500)
        for name, page in pages.items():
            page.screenshot(path=arguments.out / f"page-{name}.png", full_page=name != "phone")


if __name__ == "__main__":
    main()
