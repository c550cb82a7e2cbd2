"""The line that shows on a terminal how the watch is going."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from otel_zernel.text import printable, visible
from otel_zernel_commands.why.findings import JobGroup, answer_of, groups_of
from otel_zernel_commands.why.started_program import StartedProgram
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_commands.why.watch import Watching
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.amounts import percent
from otel_zernel_libraries.training.causes import JobAnswer, label_of, lead_of
from otel_zernel_libraries.training.programs import script_of
from otel_zernel_libraries.training.state import SeenProcess, TrainingState

_CLEAR = "\r\x1b[K"
_NAMED = 3
"""Jobs that the line names."""
_FEWEST = 10
"""Steps of a job whose first cause it names."""


class WatchProgress:
    """Follows the chosen jobs. Rewrites one line of a terminal; another output gets one line at the start."""

    def __init__(
        self,
        stream: TextIO,
        state: TrainingState,
        choice: JobChoice,
        is_running: Callable[[int], bool],
        may_show_steps: Callable[[], bool] = lambda: True,
        program: StartedProgram | None = None,
    ) -> None:
        """`is_running` looks at the process with a pid, `may_show_steps` at all that are chosen. `program` is held
        until the watch begins."""
        self._stream = stream
        self._state = state
        self._choice = choice
        self._is_running = is_running
        self._may_show_steps = may_show_steps
        self._program = program
        self.found_steps = False
        """Whether `has_steps` has been true."""
        self._is_terminal = stream.isatty()
        self._is_shown = self._is_answered = False

    @property
    def starts_program(self) -> bool:
        return self._program is not None

    def begin(self) -> None:
        """Lets the program begin."""
        if self._program:
            self._program.release()

    def show(self, watching: Watching) -> None:
        """Shows the time, and the jobs so far. The output of a started program has the terminal for itself."""
        if self._program:
            if not self._is_shown:
                user = f" as {visible(self._program.user)}" if self._program.user else ""
                name = f"{visible(script_of(self._program.words))}{user} (pid {self._program.pid})"
                self._stream.write(f"Started {name}. Ctrl-C stops it, and prints the report.\n")
        elif self._is_terminal:
            _rewrite(self._stream, self.text(watching))
        elif not self._is_shown:
            self._stream.write(f"Watching for {watching.seconds:.0f} s. Ctrl-C ends early, with the report so far.\n")
        elif not self._is_answered:
            self._show_answers()
        self._is_shown = True
        self._stream.flush()

    def _show_answers(self) -> None:
        """Writes the first causes that are known, once: the report has those of all steps."""
        for group in self._groups():
            if (answer := _interim_answer(group)) and answer.first:
                self._is_answered = True
                self._stream.write(f"{group.title}, after {_count_of(group):,} steps: {lead_of(answer)}\n")

    def has_steps(self) -> bool:
        """Whether a chosen job has taken a step."""
        self.found_steps = self.found_steps or bool(self._groups())
        return self.found_steps

    def may_show_steps(self) -> bool:
        """Whether a chosen process has taken a step, or has loaded a library that shows steps."""
        return self.has_steps() or self._may_show_steps()

    def cost(self) -> float:
        """The largest share of the time of a chosen process that probes took."""
        processes = (process for group in self._groups() for process in group.processes)
        return max((process.probe_share or 0.0 for process in processes), default=0.0)

    def has_ended(self) -> bool:
        """Whether no process of the chosen jobs is running any more, or all of them hang: there is nothing more to see.
        A pid may belong to another process by now."""
        groups, pid = self._groups(), self._choice.pid
        if groups and all(group.hang for group in groups):
            return True
        if any(self._runs(process) for group in groups for process in group.processes):
            return False
        if self._program:
            return not self._program.is_running
        return bool(groups) or (pid is not None and not self._is_running(pid))

    def text(self, watching: Watching) -> str:
        """`12 of 60 s · train.py: 340 steps (data loading: runs Python, 31 %) · Ctrl-C ends early`."""
        time = f"{watching.elapsed:.0f} of {watching.seconds:.0f} s"
        return f"{time} · {_steps_of(self._groups())} · Ctrl-C ends early"

    def clear(self) -> None:
        """Removes the line."""
        if self._is_terminal and self._is_shown and not self._program:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _runs(self, process: SeenProcess) -> bool:
        return process.ended_at is None and self._is_running(process.pid)

    def _groups(self) -> list[JobGroup]:
        groups = groups_of(self._state.processes, self._state.jobs)
        return [group for group in groups if group.is_chosen(self._choice)]


class ReplayProgress:
    """Follows the jobs of a recording. Rewrites one line of a terminal; another output gets none."""

    def __init__(self, stream: TextIO, path: Path, state: TrainingState) -> None:
        self._stream, self._path, self._state = stream, path, state

    def show(self) -> None:
        """Shows the jobs so far."""
        if self._stream.isatty():
            steps = _steps_of(groups_of(self._state.processes, self._state.jobs))
            _rewrite(self._stream, f"Reading {printable(self._path.name)} · {steps} · Ctrl-C ends early")

    def clear(self) -> None:
        """Removes the line."""
        if self._stream.isatty():
            self._stream.write(_CLEAR)
            self._stream.flush()


def _rewrite(stream: TextIO, text: str) -> None:
    terminal = Terminal.of(stream)
    stream.write(_CLEAR + terminal.encodable(text)[: terminal.width - 1])
    stream.flush()


def _interim_answer(group: JobGroup) -> JobAnswer | None:
    """What is known about a job before its watch is over; None until it has taken a few steps."""
    return answer_of(group) if _count_of(group) >= _FEWEST and not group.hang else None


def _count_of(group: JobGroup) -> int:
    return max(process.trained for process in group.processes)


def _steps_of(groups: Sequence[JobGroup]) -> str:
    jobs = ", ".join(f"{group.title}: {_count_of(group):,} steps{_cause_of(group)}" for group in groups[:_NAMED])
    more = f" and {len(groups) - _NAMED} more jobs" if len(groups) > _NAMED else ""
    return f"{jobs or 'looking for training steps'}{more}"


def _cause_of(group: JobGroup) -> str:
    """` (data loading: runs Python, 31 %)`; empty if no cause is known yet."""
    answer = _interim_answer(group)
    return f" ({label_of(answer.first)}, {percent(answer.first.share)})" if answer and answer.first else ""
