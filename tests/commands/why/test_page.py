"""The page in Chromium: its numbers are those of the report, and it asks for nothing and complains of nothing."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from otel_zernel_commands.why.findings import JobFindings, WhyReport
from otel_zernel_commands.why.rendering import page
from otel_zernel_commands.why.rendering.drawing import MOST_BARS, MOST_SEGMENTS
from otel_zernel_commands.why.rendering.times import time_rows
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.steps import StepBar
from tests.commands.why.chromium import Tab, browsing, require_chromium
from tests.commands.why.recorded_runs import report

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)></title>@data@"


def late_rank() -> WhyReport:
    return report("gloo, DDP, a late rank", is_job=True, notes=("No driver: install `nvidia-driver`.",))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tab, Path]]:
    """A browser with the page of a job with a late rank, in a folder."""
    require_chromium()
    folder = tmp_path_factory.mktemp("page")
    with browsing(folder) as tab:
        yield shown(tab, folder, late_rank()), folder


def shown(tab: Tab, folder: Path, result: WhyReport, width: int = 1200, theme: str = "light") -> Tab:
    path = folder / f"why.{width}.{theme}.html"
    path.write_text(page(result), "utf-8")
    tab.open(path.as_uri(), width, 900, theme)
    return tab


def texts(tab: Tab, selector: str) -> list[str]:
    evaluate: list[str] = tab.evaluate(f"[...document.querySelectorAll({selector!r})].map((one) => one.textContent)")
    return evaluate


def test_the_numbers_are_those_of_the_report(browser: tuple[Tab, Path]) -> None:
    tab, job = browser[0], late_rank().jobs[0]
    assert texts(tab, "h1.why") == [job.diagnosis.sentence]
    assert texts(tab, ".tiles b") == [
        *map(amount, (job.steps.p50, job.steps.p90, job.steps.p99, job.steps.longest)),
        percent(job.steps.jitter),
        str(job.steps.count),
    ]
    assert texts(tab, ".tiles span")[-1] == "steps of all ranks"
    shares = [percent(row.share) for row in time_rows(job) if not row.is_detail]
    assert texts(tab, ".times tr:not(.detail) td:nth-child(2)") == shares
    assert texts(tab, ".ranks td:nth-child(4)") == [amount(rank.lateness or 0.0) for rank in job.ranks]
    assert texts(tab, ".ranks tr.late td:first-child") == ["1"]
    assert texts(tab, ".evidence td") == [cell for row in job.diagnosis.evidence for cell in row]
    assert texts(tab, ".notes li") == ["No driver: install nvidia-driver."]


def test_the_page_asks_for_nothing_and_complains_of_nothing(browser: tuple[Tab, Path]) -> None:
    tab, _ = browser
    assert tab.requests == []
    assert tab.complaints == []


def colours_at(tab: Tab, selector: str, x: int, height: int) -> set[str]:
    """The different colours in a column of a canvas."""
    script = f"""(() => {{
        const canvas = document.querySelector({selector!r}), found = new Set();
        const copy = new OffscreenCanvas(1, {height}).getContext("2d", {{ willReadFrequently: true }});
        copy.drawImage(canvas, -{x}, 0);
        const data = copy.getImageData(0, 0, 1, {height}).data;
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 250) found.add([...data.slice(at, at + 3)].join());
        return [...found];
    }})()"""
    return set(tab.evaluate(script))


def test_the_time_line_is_drawn_in_the_colours_of_the_phases(browser: tuple[Tab, Path]) -> None:
    tab, _ = browser
    drawn = set().union(*(colours_at(tab, "canvas.line", x, 52) for x in range(80, 1000, 10)))
    assert {"230,159,0", "0,158,115", "192,96,154"} <= drawn  # data loading, compute, communication


def point_in(tab: Tab, selector: str, share: float, y: float) -> tuple[float, float]:
    box = tab.evaluate(
        f"(() => {{ const canvas = document.querySelector({selector!r}); canvas.scrollIntoView();"
        "const box = canvas.getBoundingClientRect(); return [box.left, box.top, box.width]; })()"
    )
    return box[0] + 64 + share * (box[2] - 64), box[1] + y


def test_a_step_under_the_pointer_is_described(browser: tuple[Tab, Path]) -> None:
    tab, _ = browser
    tab.mouse("mouseMoved", *point_in(tab, "canvas.line", 0.5, 40))
    tip = texts(tab, "#tip")[0]
    assert tip.startswith("rank 1, training step ")
    assert re.search(r"data loading \d", tip)
    assert tab.evaluate("document.getElementById('tip').hidden") is False


def test_dragging_zooms_and_a_double_click_shows_everything(browser: tuple[Tab, Path]) -> None:
    tab, _ = browser
    left, right = point_in(tab, "canvas.line", 0.25, 20), point_in(tab, "canvas.line", 0.75, 20)

    def range_shown() -> list[int]:
        return [int(one) for one in tab.evaluate("Object.values({...document.querySelector('canvas.line').dataset})")]

    before = range_shown()
    tab.mouse("mouseMoved", *left)
    tab.mouse("mousePressed", *left, button="left", clickCount=1)
    tab.mouse("mouseMoved", *right, buttons=1)
    tab.mouse("mouseReleased", *right, button="left", clickCount=1)
    zoomed = range_shown()
    assert zoomed == pytest.approx([before[1] / 4, before[1] * 3 / 4], rel=0.02)
    tab.evaluate("document.querySelector('button[data-do=in]').click()")
    assert range_shown()[1] - range_shown()[0] == pytest.approx((zoomed[1] - zoomed[0]) / 2, rel=0.02)
    for count in (1, 2):
        tab.mouse("mousePressed", *left, button="left", clickCount=count)
        tab.mouse("mouseReleased", *left, button="left", clickCount=count)
    assert range_shown() == before
    assert tab.complaints == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_it_fits_a_phone_and_both_themes(tmp_path: Path, width: int, theme: str) -> None:
    require_chromium()
    with browsing(tmp_path) as tab:
        shown(tab, tmp_path, late_rank(), width, theme)
        tab.screenshot(tmp_path / "page.png")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
        assert (brightness > 128) is (theme == "light")
        assert tab.complaints == []


def named(result: WhyReport, text: str) -> WhyReport:
    job = result.jobs[0]
    diagnosis = replace(job.diagnosis, sentence=text, evidence=((text, text),), advice=(text,))
    return replace(
        result, jobs=(replace(job, title=text, host=text, diagnosis=diagnosis, notes=(text,)),), notes=(text,)
    )


def test_names_of_jobs_cannot_run_scripts(tmp_path: Path) -> None:
    require_chromium()
    with browsing(tmp_path) as tab:
        shown(tab, tmp_path, named(late_rank(), HOSTILE))
        assert texts(tab, "h1.why") == [HOSTILE]
        assert HOSTILE in texts(tab, "title")[0]
        assert tab.evaluate("document.querySelectorAll('img').length") == 0
        assert tab.evaluate("document.scripts.length") == 2
        assert tab.complaints == []


def test_the_policy_allows_this_script_and_style_only() -> None:
    text = page(late_rank())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert "unsafe" not in policy[1]


def of_many_steps(job: JobFindings, ranks: int, steps: int) -> JobFindings:
    bars = tuple(
        StepBar(number * 10**7, number * 10**7 + 9 * 10**6, "training", number, (5 * 10**6, 10**6, 10**6, 10**6, 10**6))
        for number in range(steps)
    )
    return replace(job, ranks=tuple(replace(job.ranks[0], rank=rank, bars=bars) for rank in range(ranks)))


def test_a_long_run_of_many_ranks_stays_a_small_page(tmp_path: Path) -> None:
    require_chromium()
    result = late_rank()
    text = page(replace(result, jobs=(of_many_steps(result.jobs[0], 64, 4096),)))
    data = json.loads(text[text.index('id="data">') + 10 : text.index("</script>")])
    bars = [bar for rank in data["jobs"][0]["ranks"] for bar in rank["bars"]]
    assert sum(bar[2] for bar in bars) == 64 * 4096
    assert len(bars) <= MOST_BARS + 64
    assert sum(len(bar[7]) for bar in bars) <= MOST_SEGMENTS
    assert len(text) < 2_000_000
    with browsing(tmp_path) as tab:
        path = tmp_path / "long.html"
        path.write_text(text, "utf-8")
        tab.open(path.as_uri(), 1200, 900, "light")
        assert tab.complaints == []
        assert colours_at(tab, "canvas.line", 500, 600)
