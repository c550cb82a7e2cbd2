"""The command on a real terminal, tmux: what it shows, and that it leaves the terminal as it was."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import until
from otel_zernel_commands.watch.screens import FeedStatus, WatchView, draw
from otel_zernel_commands.watch.styled import Surface, plain
from otel_zernel_commands.watch.terminal import LineWriter
from tests.commands.watch.made_states import job_state, rank_id
from tests.commands.watch.tmux import Tmux, terminal

PROGRAM = str(Path(sys.executable).parent / "otel-zernel")


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The path of a saved state."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(job_state(8)))
    return str(path)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    with terminal(tmp_path) as found:
        yield found


def drawn(state: dict[str, Any], title: str, columns: int, rows: int, view: WatchView | None = None) -> list[str]:
    """The lines of a screen below the first one, which has the time of the state."""
    screen = draw(state, view or WatchView(), FeedStatus(title, now_ms=state["time"]), Surface(columns, rows))
    return [plain(line).rstrip() for line in screen.lines[1:]]


async def compared(tmux: Tmux, wanted: list[str]) -> None:
    """Waits until the terminal shows these lines, and compares."""
    with contextlib.suppress(TimeoutError, AssertionError):
        await until(lambda: below_the_first(tmux) == wanted)
    assert below_the_first(tmux) == wanted


def below_the_first(tmux: Tmux) -> list[str]:
    return [line.rstrip() for line in tmux.screen().splitlines()[1:]]


async def assert_restored(tmux: Tmux, status: int | None) -> None:
    await tmux.lacks("delays the other")
    tmux.run("sh", "-c", "stty -a | tr ' ;' '\\n\\n' | grep -xE -e '-?(icanon|echo)' | tr '\\n' ' '; echo modes")
    await tmux.shows("icanon echo modes")
    assert "-icanon" not in tmux.screen()
    assert status is None or f"status={status}," in await tmux.shows(f"status={status},")


def start(tmux: Tmux, *words: str, environ: str = "") -> None:
    """Runs the command, and prints its exit status after it."""
    tmux.run("sh", "-c", f'{environ} "$@"; echo "status=$?,"', "sh", PROGRAM, "watch", *words)


async def test_the_terminal_shows_the_drawn_lines(tmux: Tmux, run: str) -> None:
    start(tmux, run)
    await tmux.shows("delays the other", "q quit")
    await compared(tmux, drawn(job_state(8), run, 100, 24))
    tmux.keys("q")
    await assert_restored(tmux, 0)


async def test_a_new_size_draws_anew(tmux: Tmux, run: str) -> None:
    start(tmux, run)
    await tmux.shows("delays the other", "q quit")
    for columns, rows in ((40, 16), (140, 30)):
        tmux.resize(columns, rows)
        await compared(tmux, drawn(job_state(8), run, columns, rows))


async def test_keys_change_the_screen(tmux: Tmux, run: str) -> None:
    start(tmux, run)
    await tmux.shows("delays the other", "q quit")
    tmux.keys("s", "s", "s", "s")
    await tmux.shows("sort: late, rank", "LATE▼")
    tmux.keys("Down", "Up")
    await tmux.shows(">    3")
    tmux.keys("Enter")
    await tmux.shows("pid 4703", "Last steps")
    tmux.keys("Escape")
    await tmux.shows("LATE▼")
    tmux.keys("/", "r", "a", "n", "k", "5", "Enter")
    await tmux.shows("1 of 8 match rank5")
    tmux.keys("Escape", "Space")
    await tmux.shows("FROZEN")
    tmux.keys("?")
    await tmux.shows("letter in bars, word in the table")
    tmux.keys("C-c")
    await assert_restored(tmux, None)  # Ctrl-C ends the shell around the command, too


async def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(tmux: Tmux, run: str) -> None:
    tmux.run(PROGRAM, "watch", run)
    await tmux.shows("delays the other", "q quit")
    tmux.keys("C-z")
    await tmux.shows("Stopped")
    assert "delays the other" not in tmux.screen()
    tmux.run("fg")
    await compared(tmux, drawn(job_state(8), run, 100, 24))
    tmux.keys("q")
    await tmux.lacks("delays the other")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_restores_the_terminal(tmux: Tmux, run: str, number: signal.Signals) -> None:
    start(tmux, run)
    await tmux.shows("delays the other", "q quit")
    os.kill(_pid_of(run), number)
    await assert_restored(tmux, 128 + number)


async def test_an_error_restores_the_terminal_and_is_one_sentence(tmux: Tmux, tmp_path: Path) -> None:
    start(tmux, "127.0.0.1:9")
    screen = await tmux.shows("status=1,")
    assert "Error: no live state from http://127.0.0.1:9" in screen.replace("\n", "")


async def test_colours_can_be_refused(tmux: Tmux, run: str) -> None:
    start(tmux, run)
    await tmux.shows("delays the other", "q quit")
    assert re.search(r"\x1b\[[0-9;]*4[2-5]m", tmux.coloured())
    tmux.keys("q")
    await tmux.shows("status=0,")
    for words, environ in (((run, "--no-color"), ""), ((run,), "NO_COLOR=1")):
        tmux.run("clear")
        await tmux.lacks("status=")
        start(tmux, *words, environ=environ)
        await tmux.shows("delays the other", "q quit")
        assert not re.search(r"\x1b\[[0-9;]*[349][0-7]m", tmux.coloured())
        tmux.keys("q")
        await tmux.shows("status=0,")


async def test_a_dumb_terminal_gets_one_plain_table(tmux: Tmux, run: str) -> None:
    tmux.resize(120, 60)
    start(tmux, run, environ="TERM=dumb")
    screen = await tmux.shows("status=0,")
    assert "! Rank" in screen
    assert "q quit" not in screen


def _pid_of(word: str) -> int:
    """The process of the command, by its last argument."""
    ints = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if _words(path)[1:2] == [PROGRAM] and _words(path)[-1:] == [word]
    ]
    (pid,) = ints
    return pid


def _words(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode().split("\0")[:-1]
    except OSError:
        return []


def piped(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "watch", *words], capture_output=True, text=True, timeout=120, env={**os.environ, **environ}
    )


def test_a_pipe_gets_one_plain_table(run: str) -> None:
    done = piped(run, PYTHONIOENCODING="utf-8")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert done.stdout.count(" 2.21 ") == 8  # the steps per second of each rank


def test_a_pipe_without_utf_8_gets_ascii(run: str) -> None:
    assert piped(run, PYTHONIOENCODING="ascii", COLUMNS="40").stdout.isascii()


def test_json_is_the_state(run: str) -> None:
    assert json.loads(piped(run, "--json").stdout) == job_state(8)


def test_only_changed_lines_are_written() -> None:
    writer = LineWriter(-1, {})
    lines = [((f"line {number}", ""),) for number in range(5)]
    assert writer.update(lines).startswith("\x1b[?2026h\x1b[H\x1b[2J")
    assert writer.update(lines) == ""
    changed = [*lines[:3], (("other", ""),), lines[4]]
    assert writer.update(changed) == "\x1b[?2026h\x1b[4;1H\x1b[2Kother\x1b[?2026l"
    assert writer.update(changed[:4]) == "\x1b[?2026h\x1b[5;1H\x1b[J\x1b[?2026l"
    writer.forget()
    assert writer.update(changed).count("\x1b[2K") == 5


def test_the_chosen_rank_is_marked_without_colours() -> None:
    drawn = draw(job_state(8), WatchView(selected=rank_id(2)), FeedStatus("x"), Surface(80, 24))
    assert any(plain(line).startswith(">    2") for line in drawn.lines)
