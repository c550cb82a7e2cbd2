"""The flame graph of a page: its boxes, and the table beside it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_zernel_commands.why.findings import JobFindings, WhyReport
from otel_zernel_commands.why.rendering import page
from otel_zernel_commands.why.rendering.flames import MOST_BOXES, code_rows, flames_of, folded, pprof_file
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.code_paths import Tier
from otel_zernel_libraries.training.code_profiles import pprof
from otel_zernel_libraries.training.code_times import CodeTimes, PlacedStack
from otel_zernel_libraries.training.ledger import Activity, Position
from tests.commands.why.answers import slow_report
from tests.commands.why.chromium import browsing, require_chromium
from tests.libraries.training.made_stacks import (
    BACKWARD,
    CALLS,
    FETCH,
    LOOP,
    MAIN,
    TOKENIZE,
    WORKER_LOOP,
    WRAPPER,
    line,
)

HOSTILE = line(3, "</script><img src=x onerror=alert(1)>", "/home/me/run/<b>.py")
STACKS = (
    PlacedStack(3.0, Activity.PYTHON, (CALLS, TOKENIZE, WRAPPER, LOOP, MAIN), Position.LOAD),
    PlacedStack(1.0, Activity.SOCKET, (LOOP, MAIN), Position.AFTER_STEP),
    PlacedStack(1.0, Activity.OPERATOR, (BACKWARD, LOOP, MAIN), Position.BACKWARD),
    PlacedStack(2.0, Activity.PYTHON, (TOKENIZE, FETCH, WORKER_LOOP, LOOP, MAIN), Position.LOAD, 7, is_other=True),
)


def with_code(*of_ranks: tuple[PlacedStack, ...]) -> JobFindings:
    """A job of two ranks with these stacks."""
    job = slow_report().jobs[0]
    ranks = [replace(rank, code=CodeTimes(7.0, stacks)) for rank, stacks in zip(job.ranks, of_ranks, strict=True)]
    return replace(job, ranks=tuple(ranks))


def below(box: list[Any], *names: str) -> list[Any]:
    """The box inside others, by their names."""
    for name in names:
        (box,) = (one for one in box[4] if one[0] == name)
    return box


def test_boxes_go_from_a_rank_to_its_positions_and_from_there_to_its_lines() -> None:
    whole = flames_of(with_code(STACKS, ()))
    assert whole
    assert (whole[0], whole[1]) == ("all ranks", 7000.0)
    called = "PreTrainedTokenizer.__call__ (transformers/tokenization_utils.py)"
    loop = ("train.py:90 <module>", "train.py:60 main")
    box = below(whole, "rank 0", "data loading", *loop, "data/text.py:42 tokenize", called)
    assert box == [called, 3000.0, 0, int(Tier.PACKAGE), []]
    assert below(whole, "rank 0", "after the step", *loop)[4][0][:2] == [
        "waits for the network (sockets)",
        1000.0,
    ]
    assert below(whole, "rank 0", "workers", "data/text.py:42 tokenize")[1] == 2000.0


def test_a_job_without_stacks_has_no_flame_graph() -> None:
    job = with_code((), ())
    assert flames_of(job) is None
    assert code_rows(job) == []
    assert 'class="flames"' not in page(replace(slow_report(), jobs=(job,)))


def test_the_number_of_boxes_is_bounded() -> None:
    many = tuple(
        PlacedStack(1.0 + 0.001 * at, Activity.PYTHON, (line(at, f"f{at}"), MAIN), Position.LOAD) for at in range(9_000)
    )
    whole = flames_of(with_code(many, ()))

    def count(box: list[Any]) -> int:
        return 1 + sum(map(count, box[4]))

    assert whole
    assert count(whole) <= MOST_BOXES


def test_the_table_has_the_longest_places_of_each_rank() -> None:
    first, *_ = code_rows(with_code(STACKS, ()))
    called = "transformers/tokenization_utils.py:2877 PreTrainedTokenizer.__call__"
    assert (first.rank, first.place, first.line) == ("0", "data loading", f"data/text.py:42 tokenize -> {called}")
    assert first.share == pytest.approx(3 / 7)


def reported(job: JobFindings) -> WhyReport:
    return replace(slow_report(), jobs=(job,))


def test_a_click_zooms_and_escape_shows_everything_again(tmp_path: Path) -> None:
    require_chromium()
    path = tmp_path / "why.html"
    path.write_text(page(reported(with_code(STACKS, ()))), "utf-8")
    with browsing(tmp_path) as tab:
        tab.open(path.as_uri(), 1100, 900, "dark")
        shown = "document.querySelector('.path').textContent"
        assert tab.evaluate(shown) == "all ranks, 7.00 s"
        box = "document.querySelector('svg.flames g[aria-label^=\"data loading\"]')"
        tab.evaluate(f"{box}.dispatchEvent(new MouseEvent('click'))")
        assert tab.evaluate(shown) == "data loading, 3.00 s, 42.9 % of all, 42.9 % of rank 0"
        key = "document.querySelector('svg.flames').dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))"
        tab.evaluate(key)
        assert tab.evaluate(shown) == "all ranks, 7.00 s"
        assert tab.complaints == []


def test_names_in_stacks_cannot_break_out_of_the_page() -> None:
    stacks = (PlacedStack(1.0, Activity.PYTHON, (HOSTILE, MAIN), Position.LOAD),)
    text = page(reported(with_code(stacks, ())))
    assert "<img" not in text
    data = text.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["jobs"][0]["flames"][1] == 1000.0


def test_a_file_of_pprof_has_the_stacks_of_each_rank_with_its_job() -> None:
    stacks = CodeTimes(7.0, STACKS)
    labels: dict[str, str | int] = {"service.name": "train.py", "process.pid": 4620}
    assert pprof_file([with_code(STACKS, ())]) == pprof([(stacks, {**labels, semconv.RANK: 0})])


def test_folded_stacks_have_the_job_the_rank_the_position_and_the_frames() -> None:
    hostile = PlacedStack(1.0, Activity.PYTHON, (line(3, "f;\n9", "/home/me/run/a b.py"), MAIN), Position.LOAD)
    rows = dict(row.rsplit(" ", 1) for row in folded([with_code((*STACKS, *STACKS[1:2]), (hostile,))]).splitlines())
    loop = "train.py:90 <module>;train.py:60 main"
    assert rows[f"train.py;rank 0;after the step;{loop};waits for the network (sockets)"] == "2000000"
    assert rows["train.py;rank 0;workers;data/text.py:42 tokenize"] == "2000000"
    assert rows['train.py;rank 1;data loading;train.py:90 <module>;a b.py:3 "f:\\n9"'] == "1000000"
    assert folded([with_code((), ())]) == ""
