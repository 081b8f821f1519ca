"""Takes the pictures of docs/images: every board at 1400x900 over the played recording."""

import argparse
import tempfile
from pathlib import Path

from stage import played

from browser.page import browser_page, page_server, show
from kvcache_dashboards.write import files as board_files

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", type=float, default=2.0, help="times recorded time (default 2)")
    # By then one engine is full and preempts, the other has just come back from a restart.
    parser.add_argument("--until", type=float, default=109.0, help="second of the recording to stop at")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the pictures")
    parser.add_argument("--height", type=int, default=900, help="of the pictures (default 900)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    boards = board_files({})
    with (
        tempfile.TemporaryDirectory(prefix="kvcache-boards-") as folder,
        played(Path(folder), arguments.speed, arguments.until) as stage,
        page_server(boards, stage.url) as url,
        browser_page(height=arguments.height) as page,
    ):
        page.on("pageerror", lambda error: print(f"error in the page: {error}"))
        for name in boards:
            uid = name.removesuffix(".json")
            states = show(page, url, uid, stage.span)
            page.screenshot(path=arguments.out / f"{uid}.png")
            print(f"{uid}: {len(states)} panels")
            for state in states:
                if state.errors or not state.values:
                    print(f"  {state.title}: {'; '.join(state.errors) or 'no data'}")


if __name__ == "__main__":
    main()
