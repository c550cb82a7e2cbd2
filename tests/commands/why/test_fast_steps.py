"""The pictures of a job of hundreds of steps a second: they show each stall, and none that did not happen."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import Dropped, make_context
from otel_zernel_commands.why.findings import WhyReport, report_on
from otel_zernel_commands.why.rendering import page
from otel_zernel_commands.why.watch import watched_state
from otel_zernel_libraries.job_choice import JobChoice
from tests.commands.why.chromium import Tab, browsing, require_chromium
from tests.commands.why.recorded_runs import SETTINGS, circumstances
from tests.processors.phases.training import Loop, batch_of

SECONDS = 6
STALL = (0.5, 0.6)
"""The part of the time in which the job does nothing."""
DATA_LOADING = "230,159,0"
CELL = 9
"""Pixels of a cell of the heat map, at most."""
LEFT = 64
"""Pixels of the names beside a picture."""


@cache
def fast_job(rate: int) -> WhyReport:
    """A job of `rate` steps a second that stalls once."""
    settings = SETTINGS.processors["phases"]
    processor: Any = settings.cls(settings.config, make_context("processors", "phases"))
    loop, seen, each = Loop(), watched_state(lambda _: ("python", "train.py")), 1000 / rate
    while loop.now < SECONDS * 1000:
        if STALL[0] < loop.now / 1000 / SECONDS < STALL[1]:
            loop.now = STALL[1] * SECONDS * 1000
        loop.do("data_loading", 0.2 * each).wait(0.3 * each).do("backward", 0.3 * each).do("optimizer", 0.2 * each)
    loop.load(0.1)
    made = []
    for at in range(0, len(loop.spans), 500):
        made += processor.process(batch_of(loop.spans[at : at + 500]))
    for batch in [*made, *processor.flush()]:
        seen.add(batch, 0.0)
    drop = processor.context.drop
    assert isinstance(drop, Dropped)
    assert not drop.counts
    return report_on(seen, JobChoice(), circumstances())


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tab, Path]]:
    require_chromium()
    folder = tmp_path_factory.mktemp("fast")
    with browsing(folder) as tab:
        yield tab, folder


def inked(tab: Tab, selector: str, height: int, colour: str = "") -> list[bool]:
    """By the column of a canvas: whether anything, or this colour, is drawn in its first rows."""
    script = f"""(() => {{
        const canvas = document.querySelector({selector!r}), wide = canvas.width;
        const copy = new OffscreenCanvas(wide, {height}).getContext("2d", {{ willReadFrequently: true }});
        copy.drawImage(canvas, 0, 0);
        const data = copy.getImageData(0, 0, wide, {height}).data, found = Array(wide).fill(false);
        for (let at = 0; at < data.length; at += 4) {{
            const drawn = {colour!r} ? data.slice(at, at + 3).join() === {colour!r} : data[at + 3];
            if (drawn) found[at / 4 % wide] = true;
        }}
        return found;
    }})()"""
    drawn: list[bool] = tab.evaluate(script)
    return drawn[LEFT:]


@pytest.mark.parametrize("rate", [160, 740, 2000])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_pictures_show_one_stall_and_no_other(browser: tuple[Tab, Path], rate: int, width: int) -> None:
    tab, folder = browser
    tab.leave()
    path = folder / "why.html"
    path.write_text(page(fast_job(rate)), "utf-8")
    tab.open(path.as_uri(), width, 900, "light")
    loads, all_of, heat = (
        inked(tab, "canvas.line", 24, DATA_LOADING),
        inked(tab, "canvas.line", 24),
        inked(tab, "canvas.heat", 150),
    )
    first, last = (round(share * len(all_of)) for share in STALL)
    assert all(all_of)
    assert not any(heat[first + CELL : last - CELL])
    assert all(heat[: first - CELL])
    assert all(heat[last + CELL : -CELL])
    if rate > 740 or width < 600:  # else a step is wider than a pixel, and its load is a part of it
        assert not any(loads[first + 2 : last - 2])
        assert all(loads[: first - 2])
        assert all(loads[last + 2 : -2])
    job = fast_job(rate).jobs[0]
    assert sum(bar.steps for bar in job.ranks[0].bars) >= job.steps.count
    assert job.steps.count == pytest.approx(0.9 * SECONDS * rate, rel=0.03)
