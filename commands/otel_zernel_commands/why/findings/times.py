"""Where the time of a step goes: the ledger of the training threads, and what their GPUs did meanwhile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from otel_zernel_commands.why.findings.report import ActivityTime, DeviceTime, PositionTime
from otel_zernel_libraries.training.ledger import Position, phase_at
from otel_zernel_libraries.training.state import SeenProcess


def position_times(processes: Sequence[SeenProcess]) -> tuple[PositionTime, ...]:
    """The positions in the order of a step, each with its activities. Empty if no process has a ledger."""
    spent: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for process in processes:
        for (position, activity), seconds in process.ledger.items():
            spent[position][activity] = spent[position].get(activity, 0.0) + seconds
    total = sum(sum(times.values()) for times in spent.values())
    steps = sum(process.trained for process in processes)
    if not total:
        return ()

    def each(seconds: float) -> tuple[float, float]:
        return seconds / steps if steps else 0.0, seconds / total

    rows = []
    for position in sorted(spent, key=_order):
        times = sorted(spent[position].items(), key=lambda item: -item[1])
        activities = tuple(ActivityTime(activity, *each(seconds)) for activity, seconds in times if seconds)
        if activities:
            rows.append(
                PositionTime(position, phase_at(position), *each(sum(spent[position].values())), activities=activities)
            )
    return tuple(rows)


def device_time(processes: Iterable[SeenProcess], *, is_exact: bool = False) -> DeviceTime | None:
    """What the GPUs did, as a mean of the ranks that use one. None if none does. `is_exact`: by their own records."""
    using = [one for one in processes if one.trained and (one.gpu_busy or one.gpu_starved or one.gpu_undetermined)]
    if not using:
        return None
    starved: defaultdict[str, float] = defaultdict(float)
    for process in using:
        for (position, _), seconds in process.gpu_starved.items():
            starved[position] += seconds / process.trained / len(using)
    return DeviceTime(
        busy=fmean(sum(one.gpu_busy.values()) / one.trained for one in using),
        starved=_in_order(starved),
        undetermined=fmean(sum(one.gpu_undetermined.values()) / one.trained for one in using),
        exact=is_exact,
    )


def _in_order(starved: Mapping[str, float]) -> dict[str, float]:
    return {position: starved[position] for position in sorted(starved, key=_order) if starved[position]}


_POSITIONS = [position.value for position in Position]


def _order(position: str) -> int:
    return _POSITIONS.index(position) if position in _POSITIONS else len(_POSITIONS)
