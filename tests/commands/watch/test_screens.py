"""The screens at several sizes, as text.

docs/watch.md shows real screens. `ZERNEL_WRITE_GOLDEN=1 pytest tests/commands/watch` writes them anew.
"""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs.terminal_session import screen_picture
from otel_zernel_commands.watch.screens import FeedStatus, WatchView, draw
from otel_zernel_commands.watch.screens.summary import largest_parts
from otel_zernel_commands.watch.screens.verdicts import verdict_sentences
from otel_zernel_commands.watch.styled import Surface, cells, plain
from otel_zernel_commands.watch.terminal.colours import STYLES, rendered
from tests.commands.watch.made_states import NOW, job_state, rank_id, three_jobs

GOLDEN = Path(__file__).parent / "golden"
STATUS = FeedStatus("localhost:9095", now_ms=NOW)


def screen(state: dict[str, Any], columns: int, rows: int | None, view: WatchView | None = None, **more: Any) -> str:
    """The screen as text, without spaces at the ends of lines."""
    drawn = draw(state, view or WatchView(), more.get("status", STATUS), Surface(columns, rows, more.get("utf", True)))
    return "\n".join(plain(line).rstrip() for line in drawn.lines) + "\n"


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("ZERNEL_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@pytest.mark.parametrize(("columns", "rows"), [(40, 20), (80, 24), (200, 40)])
def test_the_table_at_this_size(columns: int, rows: int) -> None:
    compare(f"table_{columns}.txt", screen(job_state(), columns, rows))


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_rank_in_detail_at_this_size(columns: int) -> None:
    compare(f"rank_{columns}.txt", screen(job_state(), columns, 40, WatchView(page="rank", selected=rank_id(3))))


def test_the_help_explains_keys_and_letters() -> None:
    compare("help.txt", screen(job_state(), 80, 40, WatchView(page="help")))


def test_a_pipe_gets_all_ranks_and_no_footer() -> None:
    text = screen(job_state(64), 120, None)
    compare("pipe.txt", text)
    assert all(f"\n {number:>5} " in text for number in range(64))
    assert "quit" not in text


@pytest.mark.parametrize("page", ["table", "rank", "help"])
@pytest.mark.parametrize("columns", [20, 33, 40, 61, 80, 99, 120, 200])
@pytest.mark.parametrize("rows", [4, 9, 24, 60])
def test_every_screen_has_its_size(page: Any, columns: int, rows: int) -> None:
    for state in (job_state(12), three_jobs()):
        lines = draw(state, WatchView(page=page), STATUS, Surface(columns, rows)).lines
        assert len(lines) == rows
        assert max(cells(plain(line)) for line in lines) <= columns


def test_without_utf_8_the_screen_is_ascii() -> None:
    state = job_state()
    state["ranks"][rank_id(0)]["executable"] = "обучение"
    for page in ("table", "rank", "help"):
        assert screen(state, 200, 50, WatchView(page=page, selected=rank_id(0)), utf=False).isascii()


def test_phases_are_letters_so_that_nothing_depends_on_colour() -> None:
    text = screen(job_state(), 120, 40)
    assert " D  data loading" in text
    assert "DDDDDCCCC" in text
    assert "communication" in text


def test_a_fault_stands_above_the_numbers() -> None:
    lines = screen(job_state(), 120, 40).splitlines()
    assert lines[1] == "! Rank 3 delays the others by 121ms of a 452ms step."


def test_the_first_cause_of_a_job_replaces_its_verdict() -> None:
    state = job_state()
    sentence = "The training thread sleeps while it loads data: this costs 12.4 ms of each 41.0 ms step."
    [job] = state["jobs"].values()
    job["answer"] = {"verdict": "input_bound", "sentence": sentence, "advice": ["Use workers."]}
    assert screen(state, 120, 40).splitlines()[1] == f"! {sentence}"
    job["answer"] = {"verdict": "none", "sentence": "Nothing that was looked for is worth changing.", "advice": []}
    assert screen(state, 120, 40).splitlines()[1] == "Nothing that was looked for is worth changing."


def test_the_lines_of_code_of_the_first_cause_stand_under_it() -> None:
    state = job_state()
    [job] = state["jobs"].values()
    lines = [
        {
            "line": "train.py:42 tokenize",
            "call": "transformers/tokenization.py:2877 Tokenizer.__call__",
            "seconds": 0.0081,
        },
        {"line": "data/text.py:118 Corpus.clean", "seconds": 0.0031},
        {"line": 7, "call": [], "seconds": "x"},
        "broken",
    ]
    job["answer"] = {"verdict": "input_bound", "sentence": "It runs Python.", "advice": ["Stop."], "lines": lines}
    assert screen(state, 120, 40).splitlines()[2:5] == [
        "  train.py:42 tokenize → transformers/tokenization.py:2877 Tokenizer.__call__  8.10ms a step",
        "  data/text.py:118 Corpus.clean  3.10ms a step",
        "    - a step",
    ]
    assert screen(state, 40, 40).splitlines()[2] == "  train.py:42 tokenize →…  8.10ms a step"
    job["hung"] = {"sentence": "Rank 1 has hung for 40 s: it reads /data/x.", "advice": []}
    assert "tokenize" not in screen(state, 120, 40)


@pytest.mark.parametrize(
    ("verdict", "evidence", "sentence"),
    [
        ("input_bound", {"data_loading": 0.41}, "! Training waits for data (2 of 3 processes): 41% of the time."),
        ("unstable", {"jitter": 0.4}, "! The durations of steps vary (2 of 3 processes): jitter 40%."),
        (
            "marks_missing",
            {"missing": ["ddp_wait", "backward"]},
            (
                "! The time of the steps is unknown (2 of 3 processes): "
                "PyTorch does not show backward passes, waits of DDP."
            ),
        ),
        ("none", {}, "There is no verdict yet."),
    ],
)
def test_the_verdict_of_some_ranks_says_how_many_they_are(
    verdict: str, evidence: dict[str, Any], sentence: str
) -> None:
    state = job_state(3)
    for job in state["jobs"].values():
        job["verdict"] = {"name": "none"}
    for rank in state["ranks"].values():
        rank["verdict"] = {"name": verdict, "evidence": evidence}
    rank["verdict"] = {"name": "none", "evidence": {}}
    assert screen(state, 140, 40).splitlines()[1] == sentence


def test_ranks_without_a_verdict_get_no_verdict() -> None:
    state = job_state(3)
    for one in (*state["jobs"].values(), *state["ranks"].values()):
        del one["verdict"]
    assert screen(state, 140, 40).splitlines()[1] == "There is no verdict yet."


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_several_jobs_are_a_list_first(columns: int) -> None:
    text = screen(three_jobs(), columns, 20)
    compare(f"jobs_{columns}.txt", text)
    assert all(name in text for name in ("train.py", "finetune.py", "ppo.py"))


def test_each_number_in_the_list_belongs_to_one_job() -> None:
    lines = {line.split()[0].lstrip(">"): line.split() for line in screen(three_jobs(), 160, 16).splitlines()[3:6]}
    assert [lines["ppo.py"][3], *lines["ppo.py"][-3:-1]] == ["3.30ms", "300", "6.60ms"]
    assert [lines["finetune.py"][3], *lines["finetune.py"][-3:-1]] == ["500ms", "2.00", "1.00s"]
    assert "C" * 15 in lines["ppo.py"]
    assert "D" * 15 in lines["finetune.py"]
    assert "D" * 15 not in lines["train.py"]


def test_enter_shows_one_job_and_escape_all_again() -> None:
    view, state = WatchView(), three_jobs()
    first = draw(state, view, STATUS, Surface(100, 24))
    view.press("j", first.shown)
    view.press("enter", first.shown)
    text = screen(state, 100, 24, view)
    assert view.job == first.shown[1]
    assert text.splitlines()[1] == "train.py, 8 ranks"
    one = draw(state, view, STATUS, Surface(100, 24))
    assert not {"ppo.py"} & set(text.split())
    view.press("enter", one.shown)
    assert view.page == "rank"
    view.press("escape", one.shown)
    view.press("escape", one.shown)
    assert screen(state, 100, 24, view) == screen(state, 100, 24, WatchView(selected=view.selected))


def test_the_finding_on_a_job_in_the_list_has_its_number_at_80_columns() -> None:
    state = three_jobs()
    cause = {"cause": "data loading: runs Python", "share": 0.25, "advice": ["Load in workers."]}
    state["jobs"]["llama"]["answer"] = {"verdict": "input_bound", "sentence": "A sentence.", **cause}
    assert "! saves 25%: data loading: runs Python" in screen(state, 80, 24)


def test_a_sentence_is_whole_at_80_columns_and_keeps_numbers_with_their_units() -> None:
    sentence = (
        "The other ranks wait for rank 1, which runs Python while it loads data: this costs 11.5 ms of each 52.6 ms "
        "step. Without it, a step takes about 41.2 ms (1.3 times as many steps a second)."
    )
    state = job_state()
    state["jobs"]["llama"]["answer"] = {"verdict": "straggler", "sentence": sentence, "advice": ["Look at rank 1."]}
    for columns in (40, 80, 83, 120):
        lines = screen(state, columns, 30).splitlines()
        shown = lines[1 : next(at for at, line in enumerate(lines) if not line)]
        assert " ".join(line.strip() for line in shown).removeprefix("! ") == sentence
        assert not any(line.lstrip().startswith("ms") for line in shown)


def test_the_time_of_the_running_ranks_is_shown_by_position_and_activity() -> None:
    state = job_state(2)
    for number, shares in enumerate(({"load": {"python": 0.4}}, {"load": {"python": 0.2, "file": 0.1}})):
        state["ranks"][rank_id(number)] |= {"moments": shares}
    state["ranks"]["ended"] = {"moments": {"between": {"timer": 1.0}}, "ended": {"code": 0}}
    [part] = largest_parts(state)
    assert (part.name, part.phase) == ("data loading: mostly runs Python", "data_loading")
    assert part.share == pytest.approx(0.35)
    assert largest_parts({"ranks": {"one": {"moments": {"load": "?"}}}}) == []


def test_waits_for_other_ranks_are_parts_of_their_own() -> None:
    state = job_state(1)
    state["ranks"][rank_id(0)] |= {"moments": {"backward": {"collective": 0.4, "operator": 0.3}}}
    assert [(part.name, part.share, part.phase) for part in largest_parts(state)] == [
        ("backward pass: waits for other ranks", 0.4, "nccl_collective"),
        ("backward pass: runs operators", 0.3, "gpu_compute"),
    ]


def test_the_use_of_the_gpus_has_bounds() -> None:
    text = screen(job_state(2), 120, 30)
    assert "GPU: # busy 52% to 89%; no work 6% in data loading, 5% in optimizer" in text
    assert "?" in next(line for line in text.splitlines() if line.startswith("####"))


def test_a_job_on_the_cpu_has_no_word_of_a_gpu() -> None:
    state, status = job_state(2, gpus=0), replace(STATUS, gpu_notes=("No data of GPUs: no driver",))
    assert "No data of GPUs" in screen(state, 80, 30, status=status)
    for rank in state["ranks"].values():
        for field in ("gpu", "launch", "device"):
            del rank[field]
    assert "GPU" not in screen(state, 80, 30, status=status)


def test_a_chosen_job_that_leaves_gives_way_to_the_list() -> None:
    view, state = WatchView(job="llama"), three_jobs()
    assert "Rank 3 delays" in screen(state, 100, 24, view)
    assert view.page == "table"
    for table in ("ranks", "jobs"):
        state[table] = {id_: one for id_, one in state[table].items() if "node0/90" in id_}
    assert "FINDING" in screen(state, 100, 24, view)


def test_a_pipe_gets_the_list_and_then_each_job() -> None:
    text = screen(three_jobs(), 120, None)
    compare("jobs_pipe.txt", text)
    assert text.index("FINDING") < text.index("Rank 3") < len(text)
    assert text.count("STEP/S") == 4


def test_the_filter_finds_jobs_by_their_name() -> None:
    view = WatchView(filter="ppo")
    text = screen(three_jobs(), 120, 16, view)
    assert "ppo.py" in text
    assert "finetune.py" not in text
    assert "1 of 3 match ppo" in text
    assert "No job matches the filter nothing." in screen(three_jobs(), 120, 16, WatchView(filter="nothing"))


def test_a_state_without_jobs_has_a_job_for_each_process() -> None:
    state = {**three_jobs(), "schema": 1, "jobs": {}, "shares": []}
    state["ranks"] = {id_: one for id_, one in state["ranks"].items() if "node0/90" in id_}
    text = screen(state, 120, 16)
    assert "2 jobs" in text
    assert "ppo.py" in text


def test_what_is_not_there_is_a_note_at_the_end() -> None:
    state = job_state(2)
    state["collector"] |= {"absent": {"receivers::nvml": "no GPUs: no driver"}, "dropped": {"max_steps": 40}}
    lines = screen(state, 100, 24).splitlines()
    assert lines[-3:-1] == ["receivers::nvml: no GPUs: no driver", "Dropped by the collector: 40 max_steps"]
    assert lines[1].startswith("! node0/4703")
    assert screen(state, 100, None).splitlines()[-2:] == lines[-3:-1]


def test_problems_of_the_collector_are_at_the_top() -> None:
    state = job_state()
    state["collector"] |= {
        "problems": {"receivers::csv": "a.csv does not exist"},
        "dropped": {"queue_full": 1200},
        "queues": {"otlp": {"items": 90, "capacity": 100}},
    }
    lines = screen(state, 100, 30, status=FeedStatus("h", "No connection to h: refused.", NOW)).splitlines()
    assert lines[1:4] == [
        "! No connection to h: refused.",
        "! receivers::csv: a.csv does not exist",
        "! The queue of otlp is 90% full",
    ]
    assert lines[4].startswith("! Rank 3 delays")
    assert lines[-2] == "Dropped by the collector: 1,200 queue_full"


def test_the_age_is_that_of_the_newest_data() -> None:
    assert "data 1 m old" in screen(job_state(), 80, 24, status=FeedStatus("h", now_ms=NOW - 400 + 60_000))
    assert "no data yet" in screen({}, 80, 24)


def test_a_column_without_a_value_is_not_there() -> None:
    state = job_state()
    for rank in state["ranks"].values():
        del rank["lateness"], rank["collectives"]
    heading = screen(state, 200, 40)
    assert "LATE" not in heading
    assert "COLL" not in heading
    assert "LAUNCH" in heading


def test_an_ended_rank_says_how() -> None:
    state = job_state()
    state["ranks"][rank_id(1)]["ended"] = {"time": int(NOW), "signal": "SIGKILL"}
    state["ranks"][rank_id(2)]["ended"] = {"time": int(NOW), "code": 3}
    text = screen(state, 80, 30)
    assert "     1 SIGKILL" in text
    assert "     2 exit 3" in text


def test_the_selected_rank_stays_on_the_screen() -> None:
    state, view = job_state(64), WatchView()
    drawn = draw(state, view, STATUS, Surface(80, 24))
    view.press("end", drawn.shown, drawn.page_rows)
    assert ">   63" in screen(state, 80, 24, view)
    view.press("home", drawn.shown, drawn.page_rows)
    assert ">    0" in screen(state, 80, 24, view)


def test_many_gpus_are_counted_and_a_key_shows_them_all() -> None:
    state = job_state(16)
    assert "more GPUs: press g" in screen(state, 100, 24)
    text = screen(state, 100, 24, WatchView(panels="gpus"))
    assert "more GPUs" not in text
    assert text.count("node1") == 8


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\nevil\u202e\x9b31m"


def _poisoned(value: Any) -> Any:
    """The value, with every text made hostile, keys included where they are free."""
    if isinstance(value, dict):
        return {key: _poisoned(one) for key, one in value.items()} | {HOSTILE: HOSTILE}
    if isinstance(value, list):
        return [*map(_poisoned, value), HOSTILE]
    return value if not isinstance(value, str) else HOSTILE


@pytest.mark.parametrize("page", ["table", "rank", "help"])
def test_control_characters_of_a_feed_never_reach_the_terminal(page: Any) -> None:
    state = _poisoned(job_state(4))
    status = FeedStatus(HOSTILE, HOSTILE, NOW, (HOSTILE,))
    for rows in (30, None):
        view = WatchView(page=page, filter="")
        for line in draw(state, view, status, Surface(200, rows)).lines:
            assert plain(line).isprintable()


@pytest.mark.parametrize("wrong", [None, "x", 3, -1e300, float("nan"), [], [[]], {}, {"a": {"b": 1}}, True])
def test_a_field_of_another_type_leaves_a_screen_that_fits(wrong: Any) -> None:
    whole = job_state(2)
    changed: list[tuple[dict[str, Any], str]] = [
        ({**whole, table: wrong}, "")
        for table in ("collector", "gpus", "ranks", "jobs", "timeline", "shares", "heat", "time", "limits")
    ]
    for table in ("ranks", "gpus", "jobs", "timeline"):
        for id_, entry in whole[table].items():
            fields = entry if isinstance(entry, dict) else ()
            changed += [({**whole, table: {id_: {**entry, field: wrong}}}, id_) for field in fields]
            changed.append(({**whole, table: {id_: wrong}}, id_))
    changed.append(({**whole, "timeline": {rank_id(0): [wrong, [wrong] * 5]}}, rank_id(0)))
    for state, selected in changed:
        for view in (WatchView(), WatchView(page="rank", selected=selected)):
            lines = screen(state, 200, 40, view).splitlines()
            assert 2 < len(lines) <= 40
            assert all(cells(line) <= 200 for line in lines)


def test_a_wide_character_takes_two_cells() -> None:
    surface = Surface(80, 24)
    assert cells(surface.fit("訓練訓練", 7)) == 7
    assert surface.cut("訓練訓練", 6) == "訓練…"


def test_a_recorded_job_has_this_screen() -> None:
    state = json.loads(
        (Path(__file__).parents[2] / "exporters/live/golden/gloo_DDP_a_late_rank.json").read_text("utf-8")
    )
    state["timeline"] = {id_: rows[1:] for id_, rows in state["timeline"].items()}  # the golden file has a count first
    status = FeedStatus("run.json", now_ms=state["time"])
    text = screen(state, 80, 14, status=status)
    assert "! The other ranks wait for rank 1, which" in text
    assert "22.3 ms of each 52.9 ms step" in " ".join(text.split())
    compare("recorded_job.txt", text)


ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/watch.md"
VIEWS = {
    "watch.svg": (WatchView(selected=rank_id(3)), 110, 28),
    "watch_rank.svg": (WatchView(page="rank", selected=rank_id(3)), 90, 30),
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_picture_is_the_screen_of_now(name: str) -> None:
    view, columns, rows = VIEWS[name]
    lines = draw(job_state(8), view, STATUS, Surface(columns, rows)).lines
    picture = screen_picture([rendered(line, STYLES) for line in lines], columns, "otel-zernel watch")
    path = ROOT / "docs" / name
    if os.environ.get("ZERNEL_WRITE_GOLDEN"):
        path.write_text(picture, "utf-8")
    assert path.read_text("utf-8") == picture
    assert f"]({name})" in PAGE.read_text("utf-8")


def test_the_text_is_the_screen_of_now() -> None:
    lines = draw(job_state(8), WatchView(), STATUS, Surface(40, 18)).lines
    screen = "\n".join(plain(line).rstrip() for line in lines)
    page = PAGE.read_text("utf-8")
    before, shown, after = re.split(r"(?<=<!-- 40 columns -->\n```\n)(.*?)(?=\n```)", page, maxsplit=1, flags=re.DOTALL)
    if os.environ.get("ZERNEL_WRITE_GOLDEN"):
        PAGE.write_text(before + screen + after, "utf-8")
    assert PAGE.read_text("utf-8") == before + screen + after
    assert shown == screen or os.environ.get("ZERNEL_WRITE_GOLDEN")


def test_a_hang_precedes_a_cause() -> None:
    state = job_state()
    (job,) = state["jobs"].values()
    job["hung"] = {"sentence": "Rank 1 has hung for 40 s: it reads /data/x.", "advice": []}
    assert verdict_sentences(state)[0] == ("Rank 1 has hung for 40 s: it reads /data/x.", True)
