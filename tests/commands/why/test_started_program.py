"""A program that the command starts: its pid, its output, its end and its exit status."""

import os
import pwd
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.testing import until
from otel_zernel_commands.why.started_program import StartedProgram


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


def test_a_program_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(CannotStart, match='cannot start "no-such-program"'):
        StartedProgram(("no-such-program",), sys.stdout)


SHELL = ("/bin/sh", "-c", '"$@"; exit', "sh")
"""It runs a command, and is not the command."""


@pytest.mark.parametrize(
    ("called_by", "user"),
    [
        ((), "65534"),
        (("env", "X=1"), "65534"),
        (("nice",), "65534"),
        (SHELL, "65534"),
        (("/bin/sh", "-s"), "0"),
    ],
    ids=["sudo", "sudo env", "sudo nice", "a script", "a shell of root"],
)
def test_sudo_starts_it_as_its_caller_but_a_shell_of_root_does_not(
    tmp_path: Path, called_by: tuple[str, ...], user: str
) -> None:
    if os.geteuid():
        pytest.skip("needs root, to become another user")
    source = (
        "import sys; from otel_zernel_commands.why.started_program import StartedProgram;"
        "program = StartedProgram(('id', '-u'), sys.stdout); program.release(); program.wait();"
        "print(program.user, file=sys.stderr)"
    )
    words = [*called_by, sys.executable, "-c", source]
    typed = None
    if called_by == ("/bin/sh", "-s"):  # it reads commands, as in a terminal
        words, typed = [*called_by], f"{shlex.join([sys.executable, '-c', source])}; exit\n"
    environment = {**os.environ, "SUDO_UID": "65534", "SUDO_GID": "65534"}
    ended = subprocess.run(words, input=typed, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == f"{user}\n"
    assert ended.stderr == ("root\n" if user == "0" else f"{pwd.getpwuid(65534).pw_name}\n")
