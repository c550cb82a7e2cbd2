"""Where the time of the running ranks goes, by position and activity, and what their GPUs do meanwhile: their means."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from otel_zernel_commands.watch.reading import as_number, number, objects, table
from otel_zernel_commands.watch.screens import amounts
from otel_zernel_commands.watch.screens.phase_bars import bar
from otel_zernel_commands.watch.styled import StyledLine
from otel_zernel_libraries.training import PHASE_WORDS, moment_name, position_name
from otel_zernel_libraries.training.ledger import Activity, Phase, phase_at

_SMALL = 0.01
_WHOLE = 0.95
"""An activity that takes so much of its position is named beside it."""
_BUSY, _UNKNOWN = ("#", ""), ("?", "dim")


class TimePart(NamedTuple):
    """A part of the time of the training threads."""

    name: str
    share: float
    phase: str


class Device(NamedTuple):
    """The shares of the time of GPUs."""

    busy: float
    starved: Mapping[str, float]
    """By position."""
    undetermined: float


def largest_parts(state: Mapping[str, Any]) -> list[TimePart]:
    """The positions with what the thread mostly does in them, the largest first; empty if they are not known. Its waits
    for other ranks are parts of their own."""
    known = [moments for rank in _running(state) if (moments := table(rank, "moments"))]
    spent: defaultdict[tuple[str, Phase], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for moments in known:
        for position, shares in moments.items():
            for activity, share in shares.items() if isinstance(shares, dict) else ():
                phase = Phase.NCCL_COLLECTIVE if activity == Activity.COLLECTIVE else phase_at(position)
                spent[position, phase][activity] += max(as_number(share) or 0.0, 0.0) / len(known)
    parts = []
    for (position, phase), by_activity in spent.items():
        whole, activity = sum(by_activity.values()), max(by_activity, key=lambda one: by_activity[one])
        if whole < _SMALL:
            continue
        name = moment_name(position, activity)
        if by_activity[activity] < _WHOLE * whole:
            name = name.replace(": ", ": mostly ", 1)
        parts.append(TimePart(name, whole, phase))
    return sorted(parts, key=lambda part: -part.share)


def mean_device(state: Mapping[str, Any]) -> Device | None:
    """None if no rank has a GPU whose work is known."""
    known = [device for rank in _running(state) if (device := table(rank, "device"))]
    if not known:
        return None
    starved: defaultdict[str, float] = defaultdict(float)
    for device in known:
        for position in table(device, "starved"):
            starved[position] += (number(device, "starved", position) or 0.0) / len(known)
    busy, undetermined = (
        sum(number(one, key) or 0.0 for one in known) / len(known) for key in ("busy", "undetermined")
    )
    return Device(busy, dict(starved), undetermined)


def device_bar(device: Device, width: int) -> StyledLine:
    """Busy, then without work in the colours of the positions, then not known."""
    phases = [(phase_at(position), share) for position, share in device.starved.items()]
    starved = [(PHASE_WORDS[phase].letter, f"on_{phase}", share) for phase, share in phases]
    return bar([(*_BUSY, device.busy), *starved, (*_UNKNOWN, device.undetermined)], width)


def device_sentence(device: Device) -> str:
    """`GPU: # busy 39 % to 56 %; no work 29 % in data loading`."""
    bounds = [amounts.percent(share) for share in (device.busy, device.busy + device.undetermined)]
    busy = bounds[0] if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"
    ordered = sorted(device.starved.items(), key=lambda item: -item[1])
    starved = [f"{amounts.percent(share)} in {position_name(at)}" for at, share in ordered if share >= _SMALL]
    return f"GPU: {_BUSY[0]} busy {busy}" + (f"; no work {', '.join(starved)}" if starved else "")


def _running(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [rank for rank in objects(state, "ranks").values() if "ended" not in rank]
