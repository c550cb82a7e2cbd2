"""The pictures of docs/live.md."""

import time
from base64 import b64decode
from pathlib import Path

from tests.commands.why.chromium import Tab
from tests.exporters.live.page.served_page import ServedPage

DOCS = Path(__file__).parents[4] / "docs"
SECONDS = 40
PICTURES = {"live_page.png": ((1280, 1560), "light"), "live_page_phone.png": ((390, 1240), "dark")}
"""Width and height, and the theme, by name."""
_HELD = """
const at = Date.now(), get = Headers.prototype.get;
Date.now = () => at;
Headers.prototype.get = function (name) { return name === "date" ? null : get.call(this, name); };
"""
"""For the page, it is always the time of its state."""


def picture(tab: Tab, page: ServedPage, size: tuple[int, int], theme: str, path: Path) -> None:
    """Writes the upper part of the page, of this width and height. `page` is held."""
    tab.leave()
    tab.open(page.url, size[0], 900, theme, _HELD)
    until = time.monotonic() + 60
    while not tab.evaluate("document.querySelector('#status').textContent").startswith("Live"):
        assert time.monotonic() < until
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
    shot = tab.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    path.write_bytes(b64decode(shot["data"]))
