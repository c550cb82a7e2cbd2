"""docs/live.md shows the page of now. `ZERNEL_WRITE_GOLDEN=1 pytest tests/exporters/live/page` writes it anew."""

import os
import struct
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.why.chromium import Tab, browsing, require_chromium
from tests.exporters.live.live_runs import SECOND
from tests.exporters.live.page.generated_job import GeneratedJob
from tests.exporters.live.page.served_page import ServedPage, served_page

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


FARTHEST = 8.0
"""The mean difference of two pictures in coarse squares, of 255. The colours of a theme differ by over 200."""
_DISTANCE = """(async ([one, other]) => {
    const read = async (base64) => {
        const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
        const picture = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
        const wide = Math.ceil(picture.width / 30), high = Math.ceil(picture.height / 30);
        const context = new OffscreenCanvas(wide, high).getContext("2d", { willReadFrequently: true });
        context.imageSmoothingQuality = "high";
        context.drawImage(picture, 0, 0, wide, high);
        return context.getImageData(0, 0, wide, high).data;
    };
    const [first, second] = [await read(one), await read(other)];
    if (first.length !== second.length) return 255;
    return first.reduce((sum, value, at) => sum + Math.abs(value - second[at]), 0) / first.length * 4 / 3;
})"""


@pytest.fixture(scope="module")
def shooting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tab, ServedPage]]:
    require_chromium()
    job = GeneratedJob(64, time.time_ns() - SECONDS * SECOND)
    with served_page(job.seconds(SECONDS), held=True) as page, browsing(tmp_path_factory.mktemp("pictures")) as tab:
        yield tab, page


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_the_page_of_now(shooting: tuple[Tab, ServedPage], name: str, tmp_path: Path) -> None:
    tab, page = shooting
    documented = DOCS / name
    taken = documented if os.environ.get("ZERNEL_WRITE_GOLDEN") else tmp_path / name
    picture(tab, page, *PICTURES[name], taken)
    assert size_of(taken) == size_of(documented)
    assert distance(tab, taken, documented) < FARTHEST
    assert f"({name})" in (DOCS / "live.md").read_text("utf-8")


def test_the_other_theme_is_far_from_the_picture(shooting: tuple[Tab, ServedPage], tmp_path: Path) -> None:
    tab, page = shooting
    size, theme = PICTURES["live_page.png"]
    picture(tab, page, size, {"light": "dark", "dark": "light"}[theme], tmp_path / "other.png")
    assert distance(tab, tmp_path / "other.png", DOCS / "live_page.png") > 10 * FARTHEST


def size_of(path: Path) -> tuple[int, int]:
    """Width and height, from the header of a PNG."""
    unpack: tuple[int, int] = struct.unpack(">II", path.read_bytes()[16:24])
    return unpack


def distance(tab: Tab, one: Path, other: Path) -> float:
    words = [b64encode(path.read_bytes()).decode() for path in (one, other)]
    evaluate: float = tab.evaluate(f"{_DISTANCE}({words!r})")
    return evaluate
