"""The reports that an assistant asks for: each is the output of `otel-zernel why --json`, in a process of its own."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from otel_zernel.errors import CannotStart
from otel_zernel.text import one_line, visible
from otel_zernel_commands.why.comparison import report_of
from otel_zernel_commands.why.rendering.as_json import Report

_MOST: Final = 32
"""Reports that are kept for comparisons."""
_OLD: Final = 120.0
"""Seconds after which a report of this machine is made anew."""
_SLOWEST: Final = 180.0
"""Seconds that a report may take beside the watch."""
_HUNG: Final = 5
"""The exit status of `why` if a job hangs."""


class NumberedReport(NamedTuple):
    """A report, and its number in the session."""

    number: int
    report: Report


Run = Callable[[Sequence[str], float], tuple[int, str, str]]
"""Runs `otel-zernel` with arguments for at most so many seconds. Returns the exit status, stdout and stderr. Raises
`TimeoutExpired`."""


def run_why(arguments: Sequence[str], timeout: float) -> tuple[int, str, str]:
    """`Run`. `-P`: the folder in which the assistant starts this program has no modules for us."""
    command = [sys.executable, "-P", "-m", "otel_zernel", *arguments]
    done = subprocess.run(  # noqa: S603  # this program
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )
    return done.returncode, done.stdout, done.stderr


class Reports:
    """The reports of a session. Safe to use from several threads: only one watches at a time."""

    def __init__(self, replay: Path | None, baseline: Report | None, run: Run = run_why) -> None:
        """`replay` is a recording, None for this machine. `baseline` becomes the report 0."""
        self._replay = replay
        self._run = run
        self._kept = {0: baseline} if baseline else {}
        self._newest = 0
        self._made_at = 0.0
        self._lock = threading.Lock()

    def get(self, seconds: float, *, fresh: bool = False) -> NumberedReport:
        """The newest report, or with `fresh`, or if it is old, one that watches for `seconds`.

        A recording has one report. Raises `CannotStart` with the sentence of `why`.
        """
        with self._lock:
            is_old = self._replay is None and (fresh or time.monotonic() - self._made_at > _OLD)
            if not self._newest or is_old:
                self._keep(self._watched(seconds))
            return NumberedReport(self._newest, self._kept[self._newest])

    def numbered(self, number: int) -> Report:
        """The report with this number. Raises `CannotStart`."""
        with self._lock:
            if number not in self._kept:
                known = ", ".join(map(str, self._kept)) or "none"
                raise CannotStart(f"there is no report {number}; known reports: {known}")
            return self._kept[number]

    def _keep(self, report: Report) -> None:
        self._newest += 1
        self._made_at = time.monotonic()
        self._kept[self._newest] = report
        for number in [number for number in self._kept if number][:-_MOST]:
            del self._kept[number]

    def _watched(self, seconds: float) -> Report:
        source = ["--replay", str(self._replay.absolute())] if self._replay else ["--for", f"{seconds:g}s"]
        try:
            status, output, errors = self._run(["why", "--json", *source], seconds + _SLOWEST)
        except subprocess.TimeoutExpired as error:
            raise CannotStart(f"`why` has not ended {_SLOWEST:.0f} s after its watch") from error
        if status not in (0, _HUNG):
            last = errors.strip().rpartition("Error: ")[2]
            raise CannotStart(visible(one_line(last)) or f"`why` has ended with status {status}")
        return report_of(output.encode(), "the report")
