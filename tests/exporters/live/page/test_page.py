"""The live page in Chromium: its numbers are those of the state, its keys work, and it complains of nothing."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.causes import CodeTime
from otel_zernel_libraries.training.interval_spans import Ending
from tests.commands.why.chromium import Tab, browsing, require_chromium
from tests.exporters.live.live_runs import SECOND, Attributes, ended, phase_times
from tests.exporters.live.page.generated_job import JOB, GeneratedJob
from tests.exporters.live.page.served_page import ServedPage, served_page
from tests.libraries.training.causes.made_answers import ANSWER, CODED, answer_batch

RANKS, SECONDS, STRAGGLER = 16, 22, 13
Served = tuple[ServedPage, GeneratedJob]


class Opened:
    """A page in a tab of the browser."""

    def __init__(self, tab: Tab, page: ServedPage, job: GeneratedJob) -> None:
        self.tab = tab
        self.page = page
        self.job = job

    def texts(self, selector: str) -> list[str]:
        evaluate: list[str] = self.tab.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].filter((one) => one.checkVisibility())"
            ".map((one) => one.textContent)"
        )
        return evaluate

    def text(self, selector: str) -> str:
        return self.texts(selector)[0]

    def wait(self, condition: Callable[[], Any]) -> Any:
        """The first true result of the condition."""
        until = time.monotonic() + 60
        while not (found := condition()):
            assert time.monotonic() < until, self.texts("body")
            time.sleep(0.05)
        return found

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.tab.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def frame(self) -> None:
        self.tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def shown_range(self) -> list[int]:
        """The times (Unix ms) at the ends of the time line."""
        canvas = "document.querySelector('#line')"
        return [int(one) for one in self.tab.evaluate(f"[{canvas}.dataset.from, {canvas}.dataset.to]")]

    def point(self, share: float, y: float) -> tuple[float, float]:
        """A point of the time line: a share of its width right of the names, and its distance from the top."""
        left, top, width = self.tab.evaluate(
            "(() => { const canvas = document.querySelector('#line'); canvas.scrollIntoView({ block: 'center' });"
            "const box = canvas.getBoundingClientRect(); return [box.left, box.top, box.width]; })()"
        )
        return left + 84 + share * (width - 84), top + y

    def colours(self, selector: str) -> set[str]:
        """The opaque colours of a canvas."""
        script = f"""(() => {{
            const canvas = document.querySelector({selector!r}), found = new Set();
            const copy = new OffscreenCanvas(canvas.width, canvas.height)
                .getContext("2d", {{ willReadFrequently: true }});
            copy.drawImage(canvas, 0, 0);
            const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
            for (let at = 0; at < data.length; at += 4)
                if (data[at + 3] > 250) found.add([...data.slice(at, at + 3)].join());
            return [...found];
        }})()"""
        return set(self.tab.evaluate(script))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tab, Path]]:
    require_chromium()
    folder = tmp_path_factory.mktemp("live page")
    with browsing(folder) as tab:
        yield tab, folder


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    job = GeneratedJob(RANKS, time.time_ns() - SECONDS * SECOND, straggler=STRAGGLER)
    with served_page(job.seconds(SECONDS)) as page:
        yield page, job


@pytest.fixture
def opened(browser: tuple[Tab, Path], served: Served) -> Iterator[Opened]:
    """The page of a job with a straggler, just opened."""
    with shown(browser[0], *served) as one:
        yield one


class shown:  # noqa: N801  # used as a function
    """Opens the page in a new tab, and checks at the end that the console is empty."""

    def __init__(self, tab: Tab, page: ServedPage, job: GeneratedJob, width: int = 1280, theme: str = "light") -> None:
        self.opened = Opened(tab, page, job)
        self._options = width, theme

    def __enter__(self) -> Opened:
        tab = self.opened.tab
        tab.leave()
        tab.open(self.opened.page.url, self._options[0], 900, self._options[1])
        self.opened.wait(lambda: self.opened.text("#status").startswith("Live"))
        self.opened.frame()
        return self.opened

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            assert self.opened.tab.complaints == []


@pytest.mark.parametrize(
    ("verdict", "is_unknown", "sentence"),
    [
        (None, False, "There is no verdict yet"),
        ("none", False, "There is no verdict yet"),
        ("none", True, "No cause can be named"),
        ("host_bound", False, "The program's own code takes long"),
        ("host_bound", True, "The program's own code takes long"),
    ],
)
def test_a_job_with_many_steps_has_the_sentence_of_its_verdict(
    opened: Opened, verdict: str | None, is_unknown: bool, sentence: str
) -> None:
    rank = {"rank": 0, "steps": 100_000, "verdict": {"name": verdict, "evidence": {}} if verdict else None}
    answer = {"verdict": "none", "sentence": "No cause can be named.", "advice": []}
    job = {"ranks": ["r"], **({"answer": answer} if is_unknown else {})}
    state = {"jobs": {"j": job}, "ranks": {"r": rank}, "timeline": {}, "heat": {"columns": {}}}
    headline = f"import('/live/headline.js').then((one) => one.findingsOf({json.dumps(state)}, 0)[0].sentence)"
    assert opened.tab.evaluate(headline) == sentence


def test_the_verdict_stands_above_the_numbers(opened: Opened) -> None:
    assert opened.text("h1") == "Rank 13 delays the others by 21.0 ms in each step"
    assert opened.text("#about") == "pretrain.py, 16 ranks, 2 hosts"
    figures = dict(zip(opened.texts("#stats span"), opened.texts("#stats b"), strict=True))
    assert figures["ranks"] == figures["GPUs"] == "16"
    assert figures["steps/s per rank"] == "10.0"
    assert figures["utilization"] == "97 %"


def test_the_straggler_is_the_first_row_and_is_marked_by_more_than_a_colour(opened: Opened) -> None:
    names = opened.texts("#ranks tbody td:first-child")
    assert names == ["rank 13", *(f"rank {rank}" for rank in range(RANKS) if rank != STRAGGLER)]
    assert opened.texts("#ranks tr.late td:last-child") == ["straggler"]
    assert opened.tab.evaluate("getComputedStyle(document.querySelector('tr.late td'), '::before').content") == '"▲ "'
    cells = opened.texts("#ranks tr.late td")
    assert cells[1] == "node1 (pid 1013)"
    assert "21.0 ms" in cells
    steps = opened.texts("#ranks tbody td:nth-child(5)")
    assert steps == [str(SECONDS * 10)] * RANKS


def test_the_critical_path_and_the_gpus_are_those_of_the_state(opened: Opened) -> None:
    assert opened.texts("#path tbody tr:first-child td")[:2] == ["13", "compute"]
    assert opened.texts("#gpus h3") == [
        "GPU 6",
        "GPU 5",
        *(f"GPU {at}" for at in (0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 7)),
    ]
    assert opened.texts("#gpus li.trouble .badge") == ["XID 94 (2 times)", "throttled: heat"]
    assert opened.text("#gpus li:nth-child(2) [data-name=power] b") == "420 of 700 W"


def test_a_canvas_has_a_sentence_and_its_numbers_in_a_table(opened: Opened) -> None:
    opened.tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    opened.frame()
    labels = opened.tab.evaluate(
        "[...document.querySelectorAll('canvas[role=img]')].map((one) => one.getAttribute('aria-label'))"
    )
    assert labels[0].startswith("The last steps of 16 ranks")
    assert all(labels)
    rows = opened.page.state["timeline"]
    assert len(rows) == RANKS
    numbers = opened.wait(lambda: opened.texts("#line-numbers tbody td:nth-child(2)"))
    assert numbers == [str(SECONDS * 10)] * RANKS
    assert opened.texts("#heat-numbers tbody tr:last-child td")[:2] == ["all shown", f"{RANKS * SECONDS * 10:,}"]
    assert opened.texts("#area-numbers td:first-child")[:2] == ["data loading", "compute"]


def test_the_time_line_has_the_colours_of_the_phases(opened: Opened) -> None:
    opened.key("+")
    assert {"230,159,0", "0,158,115", "192,96,154", "0,114,178"} <= opened.colours("#line")
    assert {"230,159,0", "0,158,115", "192,96,154", "0,114,178"} <= opened.colours("#area")


def test_a_step_under_the_pointer_is_described(opened: Opened) -> None:
    opened.tab.mouse(
        "mouseMoved",
        *opened.point(0.5, 13.5 * opened.tab.evaluate("document.querySelector('#line').clientHeight - 22") / RANKS),
    )
    lines = opened.text("#tip").split("\n")
    assert lines[0].startswith("rank 13, step ")
    assert lines[2].startswith("data loading ")
    assert lines[-1] == "the job waited for this rank"


def test_dragging_zooms_shift_drags_move_and_a_double_click_shows_everything(opened: Opened) -> None:
    def drag(start: tuple[float, float], end: tuple[float, float], modifiers: int = 0) -> None:
        opened.tab.mouse("mouseMoved", *start)
        opened.tab.mouse("mousePressed", *start, button="left", clickCount=1, modifiers=modifiers)
        opened.tab.mouse("mouseMoved", *end, buttons=1, modifiers=modifiers)
        opened.tab.mouse("mouseReleased", *end, button="left", clickCount=1, modifiers=modifiers)

    opened.key("0")
    first, last = opened.shown_range()
    left, right = opened.point(0.25, 20), opened.point(0.75, 20)
    drag(left, right)
    zoomed = opened.shown_range()
    assert zoomed == pytest.approx([first + (last - first) / 4, last - (last - first) / 4], abs=(last - first) / 50)
    drag(right, left, modifiers=8)
    moved = opened.shown_range()
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0], abs=2)
    assert moved[0] > zoomed[0]
    for count in (1, 2):
        opened.tab.mouse("mousePressed", *left, button="left", clickCount=count)
        opened.tab.mouse("mouseReleased", *left, button="left", clickCount=count)
    assert opened.shown_range() == [first, last]


def test_keys_zoom_sort_reverse_and_select(opened: Opened) -> None:
    newest = opened.shown_range()
    opened.key("0")
    first, last = opened.shown_range()
    assert first < newest[0] < newest[1] == last
    opened.key("0")
    assert opened.shown_range() == newest
    opened.key("0")
    opened.key("+")
    assert opened.shown_range() == pytest.approx([(first + last) / 2, last], abs=2)
    opened.key("ArrowLeft")
    assert opened.shown_range()[1] < last
    opened.key("0")
    assert opened.shown_range() == [first, last]
    opened.key("r")
    assert opened.texts("#ranks tbody td:first-child")[0] == "rank 15"
    opened.key("s")
    assert opened.tab.evaluate("document.querySelector('th[aria-sort]:not([aria-sort=none])').textContent") == "host"
    opened.key("j")
    assert opened.tab.evaluate("document.querySelector('tr.selected').rowIndex") == 1
    opened.key("?")
    assert opened.tab.evaluate("document.querySelector('#help').open") is True
    opened.key("Escape")


def test_the_filter_takes_ranks_and_gpus_away_and_says_so(opened: Opened) -> None:
    opened.key("/")
    for key in "node1":
        opened.key(key)
    assert len(opened.texts("#ranks tbody tr")) == len(opened.texts("#gpus li")) == 8
    opened.key("x")
    assert opened.text("#line-empty") == "nothing matches “node1x”"
    assert opened.text("#ranks .empty") == "nothing matches “node1x”"
    opened.key("Escape")
    assert len(opened.texts("#ranks tbody tr")) == RANKS


def test_a_frozen_page_stands_still_and_goes_on(browser: tuple[Tab, Path]) -> None:
    job = GeneratedJob(2, time.time_ns() - 5 * SECOND, straggler=0)
    with served_page(job.seconds(5)) as page, shown(browser[0], page, job) as opened:
        opened.key(" ")
        assert opened.text("#status").startswith("Frozen at ")
        seq = page.state["seq"]
        page.add([phase_times({**job.process(0), "process.pid": 4711}, gpu_compute=1.0)])
        opened.wait(lambda: page.state["seq"] > seq)
        opened.frame()
        assert len(opened.texts("#ranks tbody tr")) == 2
        opened.key(" ")
        opened.wait(lambda: len(opened.texts("#ranks tbody tr")) == 3)


def test_the_page_says_that_it_is_stale_and_resumes_without_the_whole_state(opened: Opened) -> None:
    opened.page.stop()
    banner = opened.wait(lambda: opened.texts("#banner"))[0]
    assert banner.startswith("Not connected for ")
    assert "This is the state of " in banner
    assert opened.text("#status") == "Not connected"
    opened.tab.events.clear()
    opened.page.start()
    opened.wait(lambda: opened.text("#status").startswith("Live"))
    sent = [event["params"] for event in opened.tab.events if event.get("method") == "Network.requestWillBeSent"]
    assert all(one["request"]["headers"].get("last-event-id") for one in sent if "stream" in one["request"]["url"])
    assert not opened.texts("#banner")
    opened.tab.events[:] = [
        event for event in opened.tab.events if event.get("method") != "Log.entryAdded"
    ]  # refused connections


def test_the_theme_is_that_of_the_system_and_can_be_switched(browser: tuple[Tab, Path], served: Served) -> None:
    with shown(browser[0], served[0], served[1], theme="dark") as opened:
        background = "getComputedStyle(document.body).backgroundColor"
        assert opened.tab.evaluate(background) == "rgb(22, 24, 27)"
        assert {"240,180,41", "34,185,139"} <= opened.colours("#line")
        opened.key("t")
        assert opened.tab.evaluate(background) == "rgb(251, 251, 250)"
        assert {"230,159,0", "0,158,115"} <= opened.colours("#line")
        opened.tab.evaluate("localStorage.clear()")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_nothing_is_wider_than_the_screen(browser: tuple[Tab, Path], served: Served, width: int, theme: str) -> None:
    with shown(browser[0], served[0], served[1], width=width, theme=theme) as opened:
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width
        assert "pretrain.py" in opened.text("#about")


def test_nothing_is_not_the_same_as_loading(browser: tuple[Tab, Path]) -> None:
    with served_page() as page, shown(browser[0], page, GeneratedJob(1, 0)) as opened:
        opened.wait(lambda: opened.text("h1") == "No training yet")
        assert opened.text("#ranks .empty") == "No training process has been seen yet."
        assert opened.texts("canvas") == []
        page.add([hostile()])
        opened.wait(lambda: opened.texts("#ranks tbody tr"))


HOSTILE = "<img src=x onerror=alert(1)>"


def hostile() -> Batch:
    process: Attributes = {
        "host.name": HOSTILE,
        "process.pid": 7,
        "process.creation.time": "x",
        "process.executable.name": HOSTILE,
    }
    return phase_times(process, gpu_compute=1.0)


def test_names_are_text_and_never_markup(browser: tuple[Tab, Path]) -> None:
    with served_page([[hostile()]]) as page, shown(browser[0], page, GeneratedJob(1, 0)) as opened:
        assert opened.wait(lambda: opened.texts("#ranks tbody td:nth-child(2)")) == [HOSTILE]
        assert opened.tab.evaluate("document.querySelectorAll('img').length") == 0


def test_a_training_without_steps_pauses(browser: tuple[Tab, Path]) -> None:
    job = GeneratedJob(2, time.time_ns() - 90 * SECOND, straggler=0)
    with served_page([*job.seconds(5), *([()] * 85)]) as page, shown(browser[0], page, job) as opened:
        opened.wait(lambda: opened.text("h1").startswith("No steps for 1 min "))


def test_the_first_cause_of_a_job_is_the_headline_with_its_advice(opened: Opened) -> None:
    answer = {"verdict": "input_bound", "sentence": "It waits for data.", "advice": ["Use workers.", "Use a cache."]}
    job = {"ranks": ["r"], "answer": answer, "verdict": {"name": "input_bound"}}
    state = {"jobs": {"j": job}, "ranks": {"r": {"rank": 0}}, "timeline": {}, "heat": {"columns": {}}}
    finding = f"import('/live/headline.js').then((one) => one.findingsOf({json.dumps(state)}, 0)[0])"
    evaluate = opened.tab.evaluate(f"{finding}.then((one) => [one.sentence, one.advice])")
    assert evaluate == ["It waits for data", "Use workers."]


@pytest.mark.parametrize("width", [1400, 400])
def test_the_lines_of_code_of_the_first_cause_stand_under_it(browser: tuple[Tab, Path], width: int) -> None:
    job = GeneratedJob(2, time.time_ns() - 5 * SECOND, straggler=0)
    called = CodeTime("train.py:61 main", "<img src=x>" + "x" * 200, 0.0009)
    cause = replace(CODED, lines=(*CODED.lines[:2], called))
    seconds = [*job.seconds(5), [answer_batch(replace(ANSWER, causes=(cause,)), JOB)]]
    with served_page(seconds) as page, shown(browser[0], page, job, width) as opened:
        opened.wait(lambda: len(opened.texts("#code li")) == 3)
        assert opened.texts("#code code") == [line.line for line in cause.lines]
        assert opened.texts("#code b") == ["8.10 ms a step", "3.10 ms a step", "900 us a step"]
        assert opened.texts("#code span")[0] == "→ transformers/tokenization_utils.py:2877 Tokenizer.__call__"
        assert opened.tab.evaluate("document.querySelectorAll('img').length") == 0
        assert opened.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_end_of_a_training_is_the_headline(browser: tuple[Tab, Path]) -> None:
    job = GeneratedJob(2, time.time_ns() - 5 * SECOND, straggler=0)
    with served_page(job.seconds(5)) as page, shown(browser[0], page, job) as opened:
        ends = [ended(job.process(rank), Ending("exit", exit_code=rank)) for rank in range(2)]
        page.add(ends)
        opened.wait(lambda: opened.text("h1").startswith("The training ended "))
        assert "rank 1 with exit code 1" in opened.text("h1")
        assert opened.texts("#ranks td.phase") == ["ended, exit code 0", "ended, exit code 1"]
