"""The start of a job that began during the watch: the time to its first step, and its warm-up."""

from collections.abc import Iterable
from datetime import datetime
from itertools import takewhile
from statistics import median

from otel_zernel_commands.why.findings.report import JobStart
from otel_zernel_libraries.training import TRAINED
from otel_zernel_libraries.training.state import SeenProcess

_WARMING = 1.5
"""How much longer than a usual step the steps of a warm-up take, at least."""
_FEWEST = 3
"""Steps to know how long a usual one takes."""


def start_of(processes: Iterable[SeenProcess], since_ns: int, program_ns: int = 0) -> JobStart | None:
    """The start of the process whose first step came last. None if a process began before `since_ns` (Unix time), or
    took too few steps. `program_ns` is the start of the program that the command has started, if it has."""
    starts = [_start(one, program_ns or _created_ns(one), since_ns) for one in processes]
    known = [start for start in starts if start]
    return max(known, key=lambda one: one.first_step_after) if known and len(known) == len(starts) else None


def _start(process: SeenProcess, began_ns: int, since_ns: int) -> JobStart | None:
    steps = sorted((bar for bar in process.bars.bars if bar.kind in TRAINED), key=lambda bar: bar.start_ns)
    if began_ns < since_ns or len(steps) < _FEWEST:
        return None
    each = [bar.duration_ns / bar.steps / 1e9 for bar in steps]
    usual = median(each)
    warming = list(takewhile(lambda seconds: seconds > _WARMING * usual, each))
    return JobStart(
        first_step_after=max(steps[0].start_ns - began_ns, 0) / 1e9,
        first_step=each[0],
        warm_up_steps=sum(bar.steps for bar in steps[: len(warming)]),
        warm_up=sum(seconds - usual for seconds in warming),
    )


def _created_ns(process: SeenProcess) -> int:
    """When the process was created (Unix time); 0 if that is not known."""
    try:
        created = datetime.fromisoformat(str(process.attributes["process.creation.time"]))
    except (KeyError, ValueError):
        return 0
    return round(created.timestamp() * 1e9)
