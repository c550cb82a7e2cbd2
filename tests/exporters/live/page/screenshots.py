"""Writes the pictures of docs/live.md: `python -m tests.exporters.live.page.screenshots`."""

import tempfile
import time
from base64 import b64decode
from pathlib import Path

from tests.commands.why.chromium import Tab, browsing
from tests.exporters.live.live_runs import SECOND
from tests.exporters.live.page.generated_job import GeneratedJob
from tests.exporters.live.page.served_page import ServedPage, served_page

DOCS = Path(__file__).parents[4] / "docs"
SECONDS = 40


def picture(tab: Tab, page: ServedPage, size: tuple[int, int], theme: str, path: Path) -> None:
    """Writes the upper part of the page, of this width and height."""
    tab.leave()
    tab.open(page.url, size[0], 900, theme)
    until = time.monotonic() + 60
    while not tab.evaluate("document.querySelector('#status').textContent").startswith("Live"):
        assert time.monotonic() < until
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
    shot = tab.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    path.write_bytes(b64decode(shot["data"]))


def main() -> None:
    job = GeneratedJob(64, time.time_ns() - SECONDS * SECOND)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        served_page(job.seconds(SECONDS)) as page,
        browsing(Path(folder)) as tab,
    ):
        picture(tab, page, (1280, 1560), "light", DOCS / "live_page.png")
        picture(tab, page, (390, 1240), "dark", DOCS / "live_page_phone.png")


if __name__ == "__main__":
    main()
