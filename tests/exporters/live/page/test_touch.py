"""The live page under fingers: a drag moves the time line, two fingers zoom it, a tap describes a step."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.why.chromium import browsing, require_chromium
from tests.exporters.live.live_runs import SECOND
from tests.exporters.live.page.generated_job import GeneratedJob
from tests.exporters.live.page.served_page import served_page
from tests.exporters.live.page.test_page import Opened, shown

RANKS, SECONDS, STRAGGLER = 4, 20, 2
WIDTH = 390


@pytest.fixture
def touched(tmp_path: Path) -> Iterator[Opened]:
    """The page on a phone, with everything in the time line."""
    require_chromium()
    job = GeneratedJob(RANKS, time.time_ns() - SECONDS * SECOND, straggler=STRAGGLER)
    with (
        served_page(job.seconds(SECONDS)) as page,
        browsing(tmp_path) as tab,
        shown(tab, page, job, width=WIDTH) as opened,
    ):
        tab.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
        opened.key("0")
        yield opened


def point(opened: Opened, share: float, row: float) -> tuple[float, float]:
    """A point of the time line: a share of its width right of the names, and a row."""
    left, top, width, height = opened.tab.evaluate(
        "(() => { const canvas = document.querySelector('#line'); canvas.scrollIntoView({ block: 'center' });"
        "const box = canvas.getBoundingClientRect(); return [box.left, box.top, box.width, box.height - 22]; })()"
    )
    return left + 62 + share * (width - 62), top + row * height / RANKS


def drag(opened: Opened, *ways: tuple[float, float]) -> None:
    """Moves fingers along the first row, each from one share of the width to another, in steps."""
    at = [[point(opened, start + (end - start) * step / 4, 0.5) for start, end in ways] for step in range(5)]
    opened.tab.touch("touchStart", *at[0])
    for points in at[1:]:
        opened.tab.touch("touchMove", *points)
    opened.tab.touch("touchEnd")


def length(shown_range: list[int]) -> int:
    return shown_range[1] - shown_range[0]


def test_two_fingers_zoom_and_one_moves(touched: Opened) -> None:
    everything = touched.shown_range()
    drag(touched, (0.45, 0.25), (0.55, 0.75))
    zoomed = touched.shown_range()
    assert length(zoomed) < length(everything) / 2
    assert everything[0] < zoomed[0]
    drag(touched, (0.2, 0.6))
    moved = touched.shown_range()
    assert length(moved) == pytest.approx(length(zoomed), abs=2)
    assert moved[0] < zoomed[0]  # earlier times come in from the left
    drag(touched, (0.25, 0.45), (0.75, 0.55))
    assert length(touched.shown_range()) > 2 * length(moved)


def test_a_tap_describes_the_step_until_another_one(touched: Opened) -> None:
    first, last = touched.shown_range()
    steps = next(rows for id_, rows in touched.page.state["timeline"].items() if f"/{1000 + STRAGGLER}/" in id_)
    number, start, lasts = steps[len(steps) // 2][:3]
    touched.tab.tap(*point(touched, (start + lasts * 500 - first) / (last - first), STRAGGLER + 0.5))
    lines = touched.wait(lambda: touched.texts("#tip"))[0].split("\n")
    assert lines[0].startswith(f"rank {STRAGGLER}, step {number}: ")
    before = touched.shown_range()
    touched.tab.evaluate("document.querySelector('h1').scrollIntoView()")
    left, top = touched.tab.evaluate(
        "(() => { const box = document.querySelector('h1').getBoundingClientRect(); return [box.left, box.top]; })()"
    )
    touched.tab.tap(left + 20, top + 8)
    touched.wait(lambda: not touched.texts("#tip"))
    assert touched.shown_range() == before
