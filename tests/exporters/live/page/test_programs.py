"""The live page of programs that train alone: each number belongs to one, and no stall is shown that did not happen."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.why.chromium import Tab, browsing, require_chromium
from tests.commands.why.recorded_runs import processed
from tests.exporters.live.page.generated_job import GeneratedJob
from tests.exporters.live.page.served_page import ServedPage, served_page
from tests.exporters.live.page.test_page import Opened, shown
from tests.exporters.live.page.training_alone import together, training_alone

SECONDS, STALL = 24, 16
"""The seconds of a program, and the one in which the fast program does nothing."""
RATES = {"train.py": 300.0, "finetune.py": 4.0, "ppo.py": 25.0}
LEFT = 84
"""Pixels of the names beside the time line."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    require_chromium()
    with browsing(tmp_path_factory.mktemp("programs")) as one:
        yield one


@pytest.fixture(scope="module")
def page() -> Iterator[ServedPage]:
    end = time.time_ns()
    programs = [
        training_alone(rate, SECONDS, end, pid=pid, program=name, loads=0.1 * pid, stall=STALL if rate == 300 else -1)
        for pid, (name, rate) in enumerate(RATES.items(), 1)
    ]
    with served_page(together(*programs)) as one:
        yield one


@pytest.fixture
def opened(tab: Tab, page: ServedPage) -> Iterator[Opened]:
    with shown(tab, page, GeneratedJob(1, 0)) as one:
        yield one


def choose(opened: Opened, name: str) -> None:
    """Chooses a job by its name."""
    opened.tab.evaluate(
        f"[...document.querySelectorAll('#jobs button')].find((one) => one.textContent === {name!r}).click()"
    )
    opened.frame()


def test_the_first_screen_lists_the_jobs_with_numbers_of_their_own(opened: Opened) -> None:
    names = opened.texts("#jobs tbody td:first-child")
    assert sorted(names) == sorted(RATES)
    rates = dict(zip(names, map(float, opened.texts("#jobs tbody td:nth-child(4)")), strict=True))
    assert rates == pytest.approx(RATES, rel=0.07)
    assert len(set(opened.texts("#jobs tbody td:nth-child(5)"))) == 3
    assert opened.tab.evaluate("document.querySelector('#jobs').getBoundingClientRect().bottom < 400")


@pytest.mark.parametrize("name", RATES)
def test_everything_below_is_about_the_chosen_job(opened: Opened, name: str) -> None:
    choose(opened, name)
    pid = [*RATES].index(name) + 1
    assert opened.text("#about") == f"{name}, pid {pid}, node"
    assert opened.texts("#ranks tbody td:first-child") == [f"pid {pid}"]
    figures = dict(zip(opened.texts("#stats span"), opened.texts("#stats b"), strict=True))
    assert float(figures["steps/s"]) == pytest.approx(RATES[name], rel=0.07)
    assert opened.texts("#legend b")[0] == f"{10 * pid} %"
    opened.tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    opened.frame()
    opened.wait(lambda: opened.texts("#heat-numbers tbody tr:last-child td")[:1])
    steps = int(opened.texts("#heat-numbers tbody tr:last-child td")[1].replace(",", ""))
    assert steps == pytest.approx(RATES[name] * (SECONDS - 3), rel=0.12)


def test_brackets_go_to_the_next_and_the_previous_job(opened: Opened) -> None:
    names = opened.texts("#jobs tbody td:first-child")
    opened.key("]")
    assert opened.text("#about").startswith(names[1])
    opened.key("[")
    opened.key("[")
    assert opened.text("#about").startswith(names[2])


def columns(opened: Opened, selector: str, left: int) -> list[bool]:
    """By the column of a canvas right of its names: whether anything is drawn above its axis."""
    script = f"""(() => {{
        const canvas = document.querySelector({selector!r}), wide = canvas.width, high = canvas.height - 23;
        const copy = new OffscreenCanvas(wide, high).getContext("2d", {{ willReadFrequently: true }});
        copy.drawImage(canvas, 0, 0);
        const data = copy.getImageData(0, 0, wide, high).data, found = Array(wide).fill(false);
        for (let at = 3; at < data.length; at += 4) if (data[at]) found[(at - 3) / 4 % wide] = true;
        return found;
    }})()"""
    drawn: list[bool] = opened.tab.evaluate(script)
    return drawn[left:]


@pytest.mark.parametrize("key", ["", "0"])
@pytest.mark.parametrize("name", RATES)
def test_the_pictures_have_no_hole(opened: Opened, name: str, key: str) -> None:
    choose(opened, name)
    if key:
        opened.key(key)
    colours = opened.colours("#line")
    assert all(columns(opened, "#line", LEFT + 1)[:-1])
    assert "223,225,228" not in colours or "#dfe1e4" in colours
    first, last = opened.shown_range()
    assert last - first >= 1000
    if key:
        assert last - first >= min(18_000, 200 / RATES[name] * 900)


def test_the_tip_over_merged_steps_has_their_number_and_the_longest(opened: Opened) -> None:
    choose(opened, "train.py")
    opened.tab.mouse("mouseMoved", *opened.point(0.9, 8))
    lines = opened.wait(lambda: opened.texts("#tip"))[0].split("\n")
    assert lines[0].startswith("pid 1, ")
    assert " steps from " in lines[0]
    assert ": 3.3" in lines[0]


def test_a_device_that_is_not_there_is_a_note_at_the_end_and_no_alarm(tab: Tab) -> None:
    with served_page() as page:
        page.health.report("receivers::nvml", "no GPUs: no driver", is_absence=True)
        with shown(tab, page, GeneratedJob(1, 0)) as opened:
            assert opened.wait(lambda: opened.texts("#absent li")) == ["receivers::nvml: no GPUs: no driver"]
            assert opened.texts("#banner") == []
            assert opened.texts(".trouble") == []
            page.health.report("receivers::nvml", "no GPUs: the driver does not answer")
            opened.wait(lambda: opened.texts("#banner"))
            opened.wait(lambda: not opened.texts("#absent li"))


def test_a_job_on_the_cpu_has_its_positions_and_activities_and_no_word_of_a_gpu(tab: Tab) -> None:
    with served_page([processed("collate in the main process")]) as page:
        page.health.report("receivers::nvml", "no GPUs: no driver", is_absence=True)
        with shown(tab, page, GeneratedJob(1, 0)) as opened:
            assert opened.wait(lambda: opened.texts("#times li"))[:2] == [
                "data loading: runs Python16 %",
                "forward pass: runs operators29 %",
            ]
            assert "GPU" not in opened.tab.evaluate("document.querySelector('main').innerText")


def test_one_job_needs_no_list(tab: Tab, tmp_path: Path) -> None:
    with served_page(training_alone(10, 8, time.time_ns())) as page, shown(tab, page, GeneratedJob(1, 0)) as opened:
        assert opened.text("#about") == "train.py, pid 42, node"
        assert opened.texts("#jobs") == []
