"""The report as text, compared with golden files. `python -m tests.commands.why.test_text` writes them again."""

import functools
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from otel_zernel_commands.why.findings import GpuRow, WhyReport, report_on
from otel_zernel_commands.why.rendering import report_text
from otel_zernel_commands.why.rendering.as_json import report_json
from otel_zernel_commands.why.rendering.text import gpu_texts
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes import JobAnswer, Unknown
from tests.commands.why.answers import slow_report
from tests.commands.why.gpus import throttled
from tests.commands.why.recorded_runs import circumstances, first_process, report, seen, simulated
from tests.commands.why.test_programs import BUSY, program, reported, thread
from tests.libraries.training.causes.made_answers import LINES

GOLDEN = Path(__file__).parent / "golden"
NOTE = "GPU utilisation and throttling: libnvidia-ml.so.1 was not found; install NVIDIA's driver."


def with_gpu() -> WhyReport:
    state = seen("GPU, 2 workers, pinned")
    for batch in throttled(3, first_process(state).pid):
        state.add(batch, 0.0)
    return report_on(state, JobChoice(), circumstances())


def refused() -> WhyReport:
    state = seen("nothing")
    first_process(state).answer = JobAnswer(step=0.03, steps=38, best=0.03, unknown=Unknown.UNCERTAIN)
    return report_on(state, JobChoice(), circumstances())


REPORTS: dict[str, Callable[[], WhyReport]] = {
    "slow_loader": lambda: report("collate in the main process", notes=(NOTE,)),
    "late_rank": lambda: report("Python on rank 1", is_interrupted=True),
    "missing_rank": lambda: report("Python on rank 1", ranks=1),
    "healthy": lambda: report("nothing"),
    "gpu": with_gpu,
    "gpus": lambda: report_on(simulated(), JobChoice(), circumstances()),
    "lines": lambda: slow_report(LINES),
    "refused": refused,
    "program": lambda: reported(program(10, thread(10, 0.0, lock=99), BUSY, cpus=0.9)),
}
FORMED = ("slow_loader", "late_rank", "lines")
"""The reports in all forms."""
TERMINALS = {
    "40": Terminal(40),
    "80": Terminal(80),
    "120": Terminal(120),
    "ascii": Terminal(80, is_unicode=False),
    "coloured": Terminal(100, is_coloured=True),
}
CASES = [(name, form) for name in REPORTS for form in TERMINALS if name in FORMED or form in ("80", "120")]


@functools.cache
def made(name: str) -> WhyReport:
    return REPORTS[name]()


def text_of(name: str, form: str) -> str:
    return report_text(made(name), TERMINALS[form])


@pytest.mark.parametrize(("name", "form"), CASES)
def test_the_text_is_the_golden_one(name: str, form: str) -> None:
    assert text_of(name, form) == (GOLDEN / f"{name}.{form}.txt").read_text("utf-8")


@pytest.mark.parametrize(("name", "form"), [case for case in CASES if case[1] != "coloured"])
def test_no_line_is_wider_than_the_terminal(name: str, form: str) -> None:
    assert max(map(len, text_of(name, form).splitlines())) <= TERMINALS[form].width


@pytest.mark.parametrize("name", REPORTS)
def test_the_reason_is_on_the_first_screen(name: str) -> None:
    result = made(name)
    first = " ".join(report_text(result, Terminal(80)).splitlines()[:6])
    assert result.jobs[0].diagnosis.sentence in re.sub(r"\s+", " ", first)


@pytest.mark.parametrize("name", FORMED)
def test_colours_change_nothing_but_colours(name: str) -> None:
    plain = report_text(made(name), Terminal(100))
    assert re.sub("\x1b\\[[0-9;]*m", "", text_of(name, "coloured")) == plain


def test_ascii_is_ascii() -> None:
    assert text_of("late_rank", "ascii").isascii()


@pytest.mark.parametrize("name", REPORTS)
def test_the_json_has_the_numbers_of_the_report(name: str) -> None:
    result = made(name)
    tree, job = json.loads(report_json(result)), result.jobs[0]
    assert tree["jobs"][0]["why"] == job.diagnosis.sentence
    assert tree["jobs"][0]["step"]["p99"] == job.steps.p99
    rows = [(row["position"], row["activity"], row["per_step"]) for row in tree["jobs"][0]["time"]]
    assert rows == [
        (at.position, activity.activity, activity.per_step) for at in job.times for activity in at.activities
    ]
    assert [row["lateness"] for row in tree["jobs"][0]["ranks"]] == [row.lateness for row in job.ranks]
    assert tree["not_seen"] == list(result.notes)


def test_several_jobs_have_a_section_each_with_different_titles() -> None:
    result = report("gloo, DDP, a late rank", notes=(NOTE,))  # without ranks, its processes are two jobs
    text = report_text(result, Terminal(80))
    titles = re.findall(r"^train\.py \((\d+)\) · pid \1 on trainer · 25 steps", text, re.MULTILINE)
    assert titles == [str(job.ranks[0].pid) for job in result.jobs]
    assert len(set(titles)) == 2
    assert text.count("Not seen") == 1
    assert [job["title"] for job in json.loads(report_json(result))["jobs"]] == [f"train.py ({pid})" for pid in titles]


@pytest.mark.parametrize(
    ("slowed", "text"),
    [
        (None, "GPU 0, NVIDIA H100: busy 50 %"),
        ({}, "GPU 0, NVIDIA H100: busy 50 %, not throttled"),
        ({"hw_slowdown": 0.2}, "GPU 0, NVIDIA H100: busy 50 %, throttled 20 % of the time (heat or power)"),
    ],
)
def test_a_gpu_is_called_throttled_only_if_the_driver_says_so(slowed: dict[str, float] | None, text: str) -> None:
    assert gpu_texts([GpuRow("node", (), 0, "NVIDIA H100", 0.5, None, None, None, slowed)]) == [text]


def test_of_many_ranks_the_latest_are_shown() -> None:
    result = made("late_rank")
    job = result.jobs[0]
    many = tuple(replace(job.ranks[0], rank=number, lateness=number / 1000) for number in range(100))
    text = report_text(replace(result, jobs=(replace(job, ranks=many),)), Terminal(80))
    assert "and 68 more ranks, all in --json" in text
    assert re.search(r"^ +99 ", text, re.MULTILINE)
    assert not re.search(r"^ +5  ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (5e-9, "5.00 ns"),
        (0.0000123, "12.3 us"),
        (0.3119, "312 ms"),
        (0.99999, "1.00 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_amounts_have_three_digits(seconds: float, text: str) -> None:
    assert amount(seconds) == text


def test_small_shares_have_a_decimal() -> None:
    assert [percent(share) for share in (0, 0.001, 0.0342, 0.0996, 0.5, 1)] == [
        "0 %", "0.1 %", "3.4 %", "10 %", "50 %", "100 %"
    ]  # fmt: skip


class FakeStream(io.StringIO):
    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal, self._encoding = terminal, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "environ", "coloured"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_only_a_terminal_that_wants_colours_gets_them(terminal: bool, environ: dict[str, str], coloured: bool) -> None:
    assert Terminal.of(FakeStream(terminal=terminal), environ).is_coloured is coloured


def test_an_output_without_unicode_gets_ascii() -> None:
    assert not Terminal.of(FakeStream(terminal=False, encoding="ANSI_X3.4-1968"), {}).is_unicode


if __name__ == "__main__":
    for path in GOLDEN.glob("*.txt"):
        path.unlink()
    for name, form in CASES:
        (GOLDEN / f"{name}.{form}.txt").write_text(text_of(name, form), "utf-8")
