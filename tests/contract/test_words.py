"""No view has words of its own: with another table, every view shows the other words.

The table gets coined words, and each view is drawn for all phases. A view that holds a word shows the old one.
"""

import json
import logging
import re
from importlib.resources import files
from typing import Literal

import pytest
import yaml

from deploy.grafana.boards import DASHBOARDS
from deploy.grafana.rendering import text_of
from docs.catalogue import ROOT
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_commands.watch.screens import FeedStatus, WatchView, draw
from otel_zernel_commands.watch.styled import Surface, plain
from otel_zernel_commands.why.findings import WhyReport
from otel_zernel_commands.why.rendering import page, report_text
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_exporters.live import LiveExporter
from otel_zernel_libraries.training import words
from tests.api_server import FakeApiServer
from tests.commands.watch.made_states import NOW, job_state, rank_id
from tests.commands.why.recorded_runs import report
from tests.processors.phases.processing import run
from tests.processors.phases.training import gauge_batch

OWN = re.compile(r"(?<![\w.])(?:data loading|communication|comm|optimizer|optim)(?![\w.])")
"""The words of phases that are in no other sentence."""
SENTENCES = [kept.sentence for kept in words.VERDICT_WORDS.values()]
ADVICE = [text for kept in words.VERDICT_WORDS.values() for text in kept.advice]


@pytest.fixture
def coined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every phase, verdict, mark, detail and cause has another word."""
    for at, (phase, kept) in enumerate(words.PHASE_WORDS.items()):
        new = kept._replace(name=f"phasename{at}", short=f"short{at}", letter="VWXYZ"[at])
        monkeypatch.setitem(words.PHASE_WORDS, phase, new)
    for verdict, old in words.VERDICT_WORDS.items():
        said = old._replace(name=f"name-of-{verdict}", sentence=f"Sentence-on-{verdict}", advice=(f"Try-{verdict}.",))
        monkeypatch.setitem(words.VERDICT_WORDS, verdict, said)
    for position, where in words.POSITION_WORDS.items():
        monkeypatch.setitem(words.POSITION_WORDS, position, where._replace(name=f"position_{position}"))
    for cause in words.CAUSE_WORDS:
        monkeypatch.setitem(words.CAUSE_WORDS, cause, words.CauseWords(f"cause_{cause}", f"cause_{cause}"))
    tables = (words.DETAIL_NAMES, words.MARK_NAMES, words.THROTTLE_NAMES, words.ACTIVITY_WORDS)
    for table, prefix in zip(tables, ("detail", "mark", "cause", "activity"), strict=True):
        for key in table:
            monkeypatch.setitem(table, key, f"{prefix}-{key}")


def reports() -> list[WhyReport]:
    names = (("stalls of 150 ms", False), ("gloo, DDP, a late rank", True), ("GPU, 2 workers, pinned", False))
    return [report(name, is_job=is_job) for name, is_job in names]


def check(text: str) -> None:
    """No word of the table is left."""
    assert not OWN.findall(text)
    assert not [sentence for sentence in [*SENTENCES, *ADVICE] if sentence in text]


@pytest.mark.usefixtures("coined")
def test_the_report_of_why_has_the_words_of_the_table() -> None:
    for result in reports():
        text = report_text(result, Terminal(200))
        check(text)
        shown = {row.position for row in result.jobs[0].times if row.share >= 0.01}
        assert shown
        assert all(words.POSITION_WORDS[position].name in text for position in shown)
        if (answer := result.jobs[0].answer) and answer.causes:
            first, sentence = answer.causes[0], result.jobs[0].diagnosis.sentence.lower()
            assert f"cause_{first.cause}" in sentence or sentence.startswith(f"position_{first.position} holds ")


@pytest.mark.usefixtures("coined")
def test_the_page_of_why_has_the_words_of_the_table() -> None:
    for result in reports():
        html = page(result)
        check(re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL))
        assert json.dumps([kept.name for kept in words.PHASE_WORDS.values()], separators=(",", ":")) in html


@pytest.mark.usefixtures("coined")
@pytest.mark.parametrize("shown", ["table", "rank", "help"])
@pytest.mark.parametrize("columns", [60, 200])
def test_the_terminal_has_the_words_of_the_table(shown: Literal["table", "rank", "help"], columns: int) -> None:
    for verdict in words.VERDICT_WORDS:
        state = job_state(5)
        for job in state["jobs"].values():
            job.pop("verdict")
        for at, (rank, phase) in enumerate(zip(state["ranks"].values(), words.PHASE_WORDS, strict=True)):
            rank |= {
                "phase": phase,
                "verdict": {"name": verdict, "evidence": {}},
                "shares": dict.fromkeys(words.PHASE_WORDS, 0.2),
            }
            rank["rank"] = at
        view = WatchView(page=shown, selected=rank_id(0))
        screen = draw(state, view, FeedStatus("feed", now_ms=NOW), Surface(columns, 60)).lines
        text = "\n".join(map(plain, screen))
        check(text)
        if shown == "table" and verdict != "none":
            assert f"Sentence-on-{verdict}" in text
        if shown == "table":
            assert all(kept.short in text for kept in words.PHASE_WORDS.values())
        else:
            assert all(kept.name in text for kept in words.PHASE_WORDS.values())


@pytest.mark.usefixtures("coined")
async def test_the_live_page_gets_the_words_of_the_table() -> None:
    api = FakeApiServer()
    context = make_context("exporters", "live", clock=SystemClock(), extensions={"api": api})
    async with LiveExporter(LiveExporter.Config(), context):
        table = (await api.get("/live/table.js")).body.decode()
    constants = {name: json.loads(value) for name, value in re.findall(r"export const (\w+) = (.*);", table)}
    assert constants["NAMES"] == [kept.name for kept in words.PHASE_WORDS.values()]
    assert constants["LETTERS"] == [kept.letter for kept in words.PHASE_WORDS.values()]
    assert {name: said["sentence"] for name, said in constants["VERDICTS"].items()} == {
        name: said.sentence for name, said in words.VERDICT_WORDS.items()
    }
    assert constants["THROTTLE_NAMES"] == words.THROTTLE_NAMES


@pytest.mark.parametrize("package", ["otel_zernel_exporters.live.page", "otel_zernel_commands.why.rendering"])
def test_no_script_holds_a_word_of_the_table(package: str) -> None:
    """The words for one thing each, quoted or in a text. `table.js` is made, and no file."""
    names = {kept.name for kept in words.PHASE_WORDS.values()}
    for file in files(package).iterdir():
        if file.name.endswith((".js", ".html")):
            text = re.sub(r"// .*", "", file.read_text("utf-8"))
            assert not names.intersection(re.findall(r"""["'`]([a-z ]+)["'`]""", text)), file.name
            assert not [one for one in (*SENTENCES, *words.DELAYS) if one.strip("{} ") in text], file.name


@pytest.mark.usefixtures("coined")
def test_the_log_of_phases_has_the_words_of_the_table(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    seconds = [(at * 1000, 1.0) for at in range(6)]
    run(gauge_batch("zernel.ebpf.missing_marks", seconds, process_pid=42, zernel_mark="backward"))
    (line,) = [record.getMessage() for record in caplog.records if "marks_missing" in record.getMessage()]
    assert "sentence-on-marks_missing. Try-marks_missing (missing: mark-backward)" in line


@pytest.mark.usefixtures("coined")
def test_a_mark_that_is_sampled_is_not_called_missing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    seconds, name = [(at * 1000, 1.0) for at in range(6)], "zernel.ebpf.missing_marks"
    sampled = gauge_batch(name, seconds[:2], process_pid=42, zernel_mark="operators", zernel_sampled=True)
    run(sampled, gauge_batch(name, seconds, process_pid=42, zernel_mark="backward"))
    (line,) = [record.getMessage() for record in caplog.records if "marks_missing" in record.getMessage()]
    assert "(missing: mark-backward)" in line


def test_no_position_claims_work_that_a_program_may_not_do() -> None:
    """Between the backward pass and the optimizer, a program may clip, scale, log, or do nothing of this."""
    shown = [*words.POSITION_WORDS.values(), *words.DETAIL_NAMES.values()]
    assert not re.search("clip|scal", str(shown).lower())


@pytest.mark.parametrize("verdict", ["straggler", "slow_link", "input_bound"])
def test_an_alert_has_the_advice_of_the_table(verdict: str) -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text("utf-8"))
    alerts = [
        rule for group in rules["groups"] for rule in group["rules"] if f'verdict="{verdict}"' in rule.get("expr", "")
    ]
    assert [alert["annotations"]["description"] for alert in alerts] == [" ".join(words.VERDICT_WORDS[verdict].advice)]


def test_the_document_on_phases_has_the_words_of_the_table() -> None:
    document = (ROOT / "docs" / "phases.md").read_text("utf-8").partition("## The table")[2]
    of_positions, _, of_activities = document.partition("| `zernel.activity` |")
    row = re.compile(r"^\| `(\w+)` \| ([^|]*) \|", re.MULTILINE)
    assert dict(row.findall(of_positions)) == {position: kept.name for position, kept in words.POSITION_WORDS.items()}
    assert dict(row.findall(of_activities)) == words.ACTIVITY_WORDS


@pytest.mark.usefixtures("coined")
def test_the_dashboards_have_the_words_of_the_table() -> None:
    boards = {board.uid: text_of(board) for board in DASHBOARDS}
    together = "".join(boards.values())
    assert all(f"$1{kept.name}$2" in together for kept in words.PHASE_WORDS.values())
    assert all(f"$1{name}" in together for name in words.DETAIL_NAMES.values())
    assert all(f'"text": "{kept.name}"' in together for kept in words.VERDICT_WORDS.values())
