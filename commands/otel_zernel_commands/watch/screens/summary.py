"""The lines above the tables: the source and its age, verdicts, troubles, totals, and where the time goes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from otel_zernel.text import spoken_duration
from otel_zernel_commands.watch.reading import as_number, number, objects, rows, table, text
from otel_zernel_commands.watch.screens import amounts
from otel_zernel_commands.watch.screens.phase_bars import (
    bar,
    phase_bar,
    ratios_of,
    widest_phase,
)
from otel_zernel_commands.watch.screens.verdicts import verdict_sentences
from otel_zernel_commands.watch.styled import StyledLine, StyledSpan, Surface, cells
from otel_zernel_libraries.training.amounts import with_units_kept
from otel_zernel_libraries.training.ledger import Activity, Phase, phase_at
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.words import PHASE_WORDS, moment_name, position_name

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
        whole, activity = sum(by_activity.values()), max(by_activity, key=lambda activity: by_activity[activity])
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
        sum(number(device, key) or 0.0 for device in known) / len(known) for key in ("busy", "undetermined")
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


_MOST_VERDICTS = 3
_MOST_LINES = 6
"""Of a sentence."""
_LONGEST_LEGEND = 4
"""Lines."""
_GPU_FIELDS = frozenset({"gpu", "launch", "device"})
"""Those of a rank that uses a GPU."""
_MOST_TROUBLES = 3
_MOST_NOTES = 3
_MOST_CODE = 3
"""Lines of code."""
_STALE_S = 10.0
"""Data that is older is marked."""
_LONGEST_BAR = 60
_WIDE = 100
"""Columns. A narrower legend has shorter names."""
_VISIBLE = 0.005
"""Smaller shares are not in the legend."""
_FEWEST_POINTS = 3


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """The source of a state."""

    title: str
    """Such as `localhost:9095`, `this machine` or the name of a file."""
    trouble: str = ""
    """A sentence, while the connection is lost."""
    now_ms: float = 0.0
    """Now, by the clock of the source (Unix time, ms)."""
    gpu_notes: tuple[str, ...] = ()
    """What cannot be seen of GPUs and why, a sentence each."""


def header(
    state: Mapping[str, Any], status: FeedStatus, surface: Surface, *, is_frozen: bool, jobs: int = 1
) -> StyledLine:
    """The source, the numbers of jobs, GPUs and ranks, and the age of the data at the right."""
    ranks, gpus = len(objects(state, "ranks")), len(objects(state, "gpus"))
    dot = surface.glyph(" · ", " - ")
    age, is_old = _age(state, status)
    right = ("FROZEN " if is_frozen else "") + age
    left = surface.clean(status.title) + (f"{dot}{jobs} jobs" if jobs > 1 else "")
    left += dot + _counted(ranks, "process", "processes")
    left += dot + _counted(gpus, "GPU", "GPUs") if gpus else ""
    host = text(state, "collector", "host")
    up_since = number(state, "collector", "up_since")
    if host and host not in status.title:
        left += dot + surface.cut(host, 40)
    if up_since is not None:
        left += f"{dot}up {spoken_duration((status.now_ms - up_since) / 1000)}"
    width = surface.columns - len(right) - 1
    if width < 8:
        return ((surface.fit(right, surface.columns), "title_old" if is_old else "title"),)
    return ((surface.fit(left, width) + " ", "title"), (right, "title_old" if is_old or is_frozen else "title"))


def _counted(number_: int, singular: str, more: str) -> str:
    return f"{number_} {singular if number_ == 1 else more}"


def _age(state: Mapping[str, Any], status: FeedStatus) -> tuple[str, bool]:
    """The age of the newest data, and whether it is old."""
    seen = [
        value
        for name in ("ranks", "gpus")
        for item in objects(state, name).values()
        if (value := number(item, "seen")) is not None
    ]
    newest = max(seen, default=number(state, "time") if "totals" in state else None)
    if newest is None:
        return "no data yet", False
    age = max(0.0, (status.now_ms - newest) / 1000)
    return f"data {spoken_duration(age)} old", age > _STALE_S


def verdict_lines(state: Mapping[str, Any], surface: Surface) -> Iterator[StyledLine]:
    """The verdicts. A fault begins with `!`."""
    sentences = verdict_sentences(state)
    for sentence, is_fault in sentences[:_MOST_VERDICTS]:
        yield from sentence_lines(("! " if is_fault else "") + sentence, "fault" if is_fault else "bold", surface)
    if len(sentences) > _MOST_VERDICTS:
        yield ((surface.cut(f"and {len(sentences) - _MOST_VERDICTS} more verdicts", surface.columns), "dim"),)


def code_lines(state: Mapping[str, Any], surface: Surface) -> Iterator[StyledLine]:
    """The lines of code of a job's first cause, each with its time in a step."""
    for job in list(objects(state, "jobs").values())[:1]:
        lines = [line for line in rows(job, "answer", "lines") if isinstance(line, dict)] if "hung" not in job else []
        for entry in lines[:_MOST_CODE]:
            call = text(entry, "call")
            line = text(entry, "line") + (f" {surface.glyph('→', '->')} {call}" if call else "")
            time = f"  {amounts.seconds(number(entry, 'seconds'))} a step"
            yield (("  " + surface.cut(line, max(surface.columns - len(time) - 2, 1)), ""), (time, "dim"))


def sentence_lines(sentence: str, style: str, surface: Surface) -> Iterator[StyledLine]:
    """A sentence on as many lines as it needs, but not more than `_MOST_LINES`."""
    left = with_units_kept(surface.clean(sentence))
    for _ in range(_MOST_LINES - 1):
        if cells(left) <= surface.columns or (end := left.rfind(" ", 2, surface.columns + 1)) < 0:
            break
        yield ((surface.cut(left[:end].replace("\xa0", " "), surface.columns), style),)
        left = " " + left[end:]
    yield ((surface.cut(left.replace("\xa0", " "), surface.columns), style),)


def note_lines(state: Mapping[str, Any], status: FeedStatus, surface: Surface) -> Iterator[StyledLine]:
    """What cannot be seen: devices that are not there, unless all jobs run on the CPU, and dropped items. It is no
    fault, so it comes last."""
    absent = table(state, "collector", "absent")
    notes = list(status.gpu_notes)
    notes += [f"{path}: {reason}" for path, reason in absent.items() if isinstance(reason, str)]
    if not any(_GPU_FIELDS & rank.keys() for rank in objects(state, "ranks").values()):
        notes = []
    dropped = table(state, "collector", "dropped")
    lost = {reason: value for reason in dropped if (value := number(dropped, reason))}
    if lost:
        notes.append("Dropped by the collector: " + ", ".join(f"{amounts.count(n)} {why}" for why, n in lost.items()))
    yield from (((surface.cut(note, surface.columns), "dim"),) for note in notes[:_MOST_NOTES])


def trouble_lines(state: Mapping[str, Any], status: FeedStatus, surface: Surface) -> Iterator[StyledLine]:
    """The lost connection, problems of the collector, full queues."""
    troubles = [status.trouble] if status.trouble else []
    troubles += [
        f"{path}: {problem}"
        for path, problem in table(state, "collector", "problems").items()
        if isinstance(problem, str)
    ]
    troubles += list(_full_queues(table(state, "collector", "queues")))
    for sentence in troubles[:_MOST_TROUBLES]:
        yield from sentence_lines(f"! {sentence}", "trouble", surface)
    if len(troubles) > _MOST_TROUBLES:
        yield ((surface.cut(f"and {len(troubles) - _MOST_TROUBLES} more problems", surface.columns), "trouble"),)


def _full_queues(queues: Mapping[str, Any]) -> Iterator[str]:
    half = 0.5
    for id_, queue in queues.items():
        items, capacity = number(queue, "items"), number(queue, "capacity")
        if items is not None and capacity and items / capacity >= half:
            yield f"The queue of {id_} is {amounts.percent(items / capacity)} full"


def total_line(state: Mapping[str, Any], surface: Surface) -> StyledLine | None:
    """The latencies of all processes together, which the older WebSocket feed has."""
    totals = table(state, "totals")
    parts = []
    for name, title in (("launch", "CUDA launch"), ("all_reduce", "all_reduce"), ("data_loading", "DataLoader wait")):
        known = [
            f"{q} {amounts.seconds(value)}" for q in ("p50", "p99") if (value := number(totals, name, q)) is not None
        ]
        if known:
            parts.append(f"{title} {' '.join(known)}")
    return ((surface.cut("All processes: " + ", ".join(parts), surface.columns), ""),) if parts else None


def time_lines(state: Mapping[str, Any], surface: Surface) -> list[StyledLine]:
    """Where the time of the ranks goes: a bar in the colours of the phases, its largest parts, how the widest phase
    changed over time, and a bar of their GPUs."""
    means = mean_shares(state)
    if not any(means):
        return []
    width = min(surface.columns, _LONGEST_BAR)
    parts = largest_parts(state)
    lines: list[StyledLine] = [phase_bar(means, width)]
    lines += _legend(parts, surface) if parts else [_legend_of_phases(means, surface)]
    if history := _history(state, surface):
        lines.append(history)
    if device := mean_device(state):
        lines += [device_bar(device, width), *sentence_lines(device_sentence(device), "", surface)]
    return lines


def _legend_of_phases(means: list[float], surface: Surface) -> StyledLine:
    total = sum(means)
    legend: list[StyledSpan] = []
    for (phase, words), share in zip(PHASE_WORDS.items(), means, strict=True):
        if share / total >= _VISIBLE:
            legend += [
                (f" {words.letter} ", f"on_{phase}"),
                (f" {words.name if surface.columns >= _WIDE else words.short} {amounts.percent(share / total)} ", ""),
            ]
    return tuple(legend)


def _legend(parts: list[TimePart], surface: Surface) -> list[StyledLine]:
    """The parts in lines. Those that do not fit into `_LONGEST_LEGEND` are left out: the smallest ones come last."""
    lines: list[list[StyledSpan]] = [[]]
    for part in parts:
        text = f" {surface.clean(part.name)} {amounts.percent(part.share)} "
        taken = sum(cells(span) for span, _ in lines[-1])
        if lines[-1] and taken + cells(text) + 3 > surface.columns:
            if len(lines) == _LONGEST_LEGEND:
                break
            lines.append([])
        lines[-1] += [(f" {PHASE_WORDS[part.phase].letter} ", f"on_{part.phase}"), (text, "")]
    return [tuple(line) for line in lines]


def mean_shares(state: Mapping[str, Any]) -> list[float]:
    """The mean of the ranks that run."""
    known = [ratios_of(table(rank, "shares")) for rank in objects(state, "ranks").values() if "ended" not in rank]
    known = [shares for shares in known if any(shares)]
    return [sum(of) / len(known) for of in zip(*known, strict=True)] if known else [0.0] * len(PHASES)


def _history(state: Mapping[str, Any], surface: Surface) -> StyledLine | None:
    """The widest phase of each of the last points, the newest at the right; neighbours of one phase are one span."""
    title = "widest phase, newest last: "
    points = rows(state, "shares")[-(min(surface.columns, _LONGEST_BAR + len(title)) - len(title)) :]
    letters: list[StyledSpan] = []
    has_room = surface.columns > 2 * len(title) and len(points) >= _FEWEST_POINTS
    for point in points if has_room else ():
        phase = widest_phase(point[1]) if isinstance(point, list) and len(point) > 1 else ""
        span = (PHASE_WORDS[phase].letter, f"on_{phase}") if phase else (" ", "")
        if letters and letters[-1][1] == span[1]:
            letters[-1] = (letters[-1][0] + span[0], span[1])
        else:
            letters.append(span)
    return ((title, "dim"), *letters) if letters else None
