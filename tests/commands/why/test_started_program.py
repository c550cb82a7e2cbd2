"""A program that the command starts: its pid, its output, its end and its exit status."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.testing import until
from otel_zernel_commands.why.watch import StartedProgram


@contextmanager
def started(path: Path, *words: str) -> Iterator[StartedProgram]:
    """A program, held, whose output is in a file."""
    with path.open("w") as output:
        program = StartedProgram(words, output)
        try:
            yield program
        finally:
            program.stop(signal.SIGKILL)


def python(source: str) -> tuple[str, ...]:
    return sys.executable, "-c", source


async def test_a_held_program_does_nothing_until_it_is_released(tmp_path: Path) -> None:
    with started(tmp_path / "output", *python("import os; print(os.getpid())")) as program:
        await until(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)
        assert program.started_ns == 0
        program.release()
        assert program.wait() == 0
        assert program.started_ns > 0
    assert (tmp_path / "output").read_text() == f"{program.pid}\n", "the pid of the shell is that of the program"


@pytest.mark.parametrize(("source", "status"), [("exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_its_exit_status_is_that_of_a_shell(tmp_path: Path, source: str, status: int) -> None:
    with started(tmp_path / "output", *python(source)) as program:
        program.release()
        assert program.wait() == status


async def test_stopping_gives_it_the_signal_that_ended_the_watch(tmp_path: Path) -> None:
    source = "import time\ntry: print('on', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: raise SystemExit(3)"
    with started(tmp_path / "output", *python(source)) as program:
        program.release()
        await until(lambda: (tmp_path / "output").read_text() == "on\n")
        assert program.stop(signal.SIGINT) == 3


async def test_a_held_program_that_is_stopped_never_runs(tmp_path: Path) -> None:
    with started(tmp_path / "output", *python("print('on')")) as program:
        program.stop()
    assert (tmp_path / "output").read_text() == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [((), "needs the command line of a program"), (("no-such-program",), 'cannot start "no-such-program"')],
)
def test_a_program_that_is_not_there_is_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(CannotStart, match=sentence):
        StartedProgram(words, sys.stdout)


@pytest.mark.parametrize(("called", "user"), [("", 65534), ("/bin/bash", 0)])
def test_sudo_starts_it_as_its_caller_but_a_shell_of_root_does_not(tmp_path: Path, called: str, user: int) -> None:
    if os.geteuid():
        pytest.skip("needs root, to become another user")
    sudo = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_COMMAND": f"{called or sys.argv[0]} why -- id"}
    with (tmp_path / "output").open("w") as output:
        program = StartedProgram(("id", "-u"), output, {"PATH": os.environ["PATH"], **sudo})
        program.release()
        assert program.wait() == 0
    assert (tmp_path / "output").read_text() == f"{user}\n"
