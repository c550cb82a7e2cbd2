"""Programs that a test talks to, a line at a time."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class Talker(NamedTuple):
    """A running program."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, line: object = "") -> None:
        """Sends it a line."""
        assert self.process.stdin
        print(line, file=self.process.stdin, flush=True)

    def line(self) -> str:
        """Its next line; empty after the last one."""
        assert self.process.stdout
        return self.process.stdout.readline().removesuffix("\n")

    def ask(self, line: object = "") -> str:
        """Sends it a line. Returns its next one."""
        self.say(line)
        return self.line()

    def close_input(self) -> None:
        """Ends its input; safe to call twice."""
        assert self.process.stdin
        self.process.stdin.close()

    def kill(self) -> None:
        """Sends SIGKILL, and waits for its end."""
        self.process.kill()
        self.process.wait()


@contextmanager
def talking(
    *command: str | Path, first: str = "ready", environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Talker]:
    """A program whose first line was `first`. At the end it is killed, with all processes that it has started."""
    with started(*command, environment=environment, cwd=cwd) as program:
        line = program.line()
        assert line == first, line
        yield program


@contextmanager
def started(
    *command: str | Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Talker]:
    """The same, which may have said nothing yet. `environment`: variables besides those of the test."""
    pipe, variables = subprocess.PIPE, {**os.environ, **(environment or {})}
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=variables, cwd=cwd, start_new_session=True
    ) as process:
        try:
            yield Talker(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
