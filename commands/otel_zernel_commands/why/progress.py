"""The line that shows on a terminal how the watch is going."""

from typing import TextIO

from otel_zernel_commands.why.findings import Choice, groups_of
from otel_zernel_commands.why.rendering import Terminal
from otel_zernel_commands.why.seen import Sightings
from otel_zernel_commands.why.watch import Watching

_CLEAR = "\r\x1b[K"


class ProgressLine:
    """Rewrites one line of a terminal. Another output gets one line at the start."""

    def __init__(self, stream: TextIO, sightings: Sightings, choice: Choice) -> None:
        self._stream = stream
        self._sightings = sightings
        self._choice = choice
        self._is_terminal = stream.isatty()
        self._is_shown = False

    def show(self, watching: Watching) -> None:
        """Shows the time, and the jobs so far."""
        if self._is_terminal:
            line = Terminal.of(self._stream).encodable(self.text(watching))[: Terminal.of(self._stream).width - 1]
            self._stream.write(_CLEAR + line)
        elif not self._is_shown:
            self._stream.write(f"Watching for {watching.seconds:.0f} s. Ctrl-C ends early, with the report so far.\n")
        self._is_shown = True
        self._stream.flush()

    def text(self, watching: Watching) -> str:
        """`12 of 60 s · train.py: 340 steps · Ctrl-C ends early`."""
        groups = [
            one for one in groups_of(self._sightings.processes, self._sightings.jobs) if self._choice.includes(one)
        ]
        jobs = ", ".join(f"{one.title}: {max(p.trained for p in one.processes):,} steps" for one in groups[:3])
        more = f" and {len(groups) - 3} more jobs" if len(groups) > 3 else ""
        time = f"{watching.elapsed:.0f} of {watching.seconds:.0f} s"
        return f"{time} · {jobs or 'looking for jobs'}{more} · Ctrl-C ends early"

    def clear(self) -> None:
        """Removes the line."""
        if self._is_terminal and self._is_shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
