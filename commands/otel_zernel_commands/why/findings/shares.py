"""Where the time of a job goes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from otel_zernel_commands.why.findings.report import TimeShare
from otel_zernel_libraries.training import PHASES
from otel_zernel_libraries.training.state import SeenProcess

_SMALL = 0.005
"""Details below this share have no row of their own."""


def time_shares(processes: Sequence[SeenProcess]) -> tuple[TimeShare, ...]:
    """The phases in the order of a step, each followed by its details. Phases without time are left out."""
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    for process in processes:
        for key, seconds in known_times(process).items():
            spent[key] += seconds
    total, steps = sum(spent.values()), sum(process.trained for process in processes)
    rows: list[TimeShare] = []
    for phase in PHASES:
        details = {detail: seconds for (of, detail), seconds in spent.items() if of == phase and seconds}
        if details:
            rows.append(_row(phase, "", sum(details.values()), total, steps))
            of_phase = sorted(details.items(), key=lambda item: -item[1])
            rows += [_row(phase, detail, one, total, steps) for detail, one in of_phase if detail]
    return tuple(row for row in rows if not row.detail or row.share >= _SMALL)


def known_times(process: SeenProcess) -> Mapping[tuple[str, str], float]:
    """By phase and detail: s, by the best source. Phases by signals have an empty detail."""
    of_source = process.source
    details = {(phase, detail): s for (phase, detail, source), s in process.details.items() if source == of_source}
    return details or {(phase, ""): s for (phase, source), s in process.phases.items() if source == of_source}


def phase_shares(process: SeenProcess) -> dict[str, float]:
    """By phase: the share of the process's time."""
    times = known_times(process)
    total = sum(times.values())
    return {phase: sum(s for (of, _), s in times.items() if of == phase) / total for phase in PHASES} if total else {}


def _row(phase: str, detail: str, seconds: float, total: float, steps: int) -> TimeShare:
    return TimeShare(phase, detail, seconds / steps if steps else 0.0, seconds / total if total else 0.0)
