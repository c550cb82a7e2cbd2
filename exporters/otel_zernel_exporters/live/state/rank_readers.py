"""How the points of each metric change a rank. A point without a recorded value removes the field."""

from collections.abc import Callable
from typing import Final

from otel_zernel_exporters.live.state.ranks import LiveRank
from otel_zernel_exporters.live.state.tables import LONGEST_TEXT
from otel_zernel_libraries.training import PHASES, SeenValue

_NS: Final = 1e9
_SOURCES: Final = ("scopes", "threads", "signals")
_MOST_MARKS: Final = 16
_MOST_KINDS: Final = 32


def _value(name: str) -> Callable[[LiveRank, SeenValue], None]:
    def read(rank: LiveRank, seen: SeenValue) -> None:
        if seen.value is None:
            rank.values.pop(name, None)
        else:
            rank.values[name] = seen.value

    return read


def _worker(name: str) -> Callable[[LiveRank, SeenValue], None]:
    def read(rank: LiveRank, seen: SeenValue) -> None:
        if seen.value is None:
            rank.workers.pop(name, None)
        else:
            rank.workers[name] = round(seen.value, 3)

    return read


def _phase_time(rank: LiveRank, seen: SeenValue) -> None:
    at = seen.text("zernel.phase.source"), seen.text("zernel.phase")
    if at[0] not in _SOURCES or at[1] not in PHASES:
        return
    if seen.value is None:
        rank.times.pop(at, None)
        rank.grown.pop(at, None)
        return
    if seen.time_ns != rank.reported_ns:
        rank.reported_ns, rank.grown = seen.time_ns, {}
    rank.grown[at] = max(0.0, seen.value - rank.times.get(at, 0.0))
    rank.times[at] = seen.value


def _phase_share(rank: LiveRank, seen: SeenValue) -> None:
    at = seen.text("zernel.phase.source"), seen.text("zernel.phase")
    if seen.value is None:
        rank.shares.pop(at, None)
    elif at[0] in _SOURCES and at[1] in PHASES:
        rank.shares[at] = seen.value


def _elapsed(rank: LiveRank, seen: SeenValue) -> None:
    phase = seen.text("zernel.phase")
    if seen.value is not None and phase in PHASES:
        rank.now_in = phase, seen.time_ns - round(seen.value * _NS)
    elif rank.now_in and rank.now_in[0] == phase:
        rank.now_in = None


def _steps(rank: LiveRank, seen: SeenValue) -> None:
    at = seen.text("zernel.step.kind")[:LONGEST_TEXT], seen.text("zernel.step.boundary")[:LONGEST_TEXT]
    if seen.value is None:
        rank.steps.pop(at, None)
    elif at in rank.steps or len(rank.steps) < _MOST_KINDS:
        rank.steps[at] = int(seen.value)


def _verdict(rank: LiveRank, seen: SeenValue) -> None:
    name = seen.text("zernel.verdict")[:LONGEST_TEXT]
    if seen.value:
        rank.verdict = name
    elif rank.verdict == name:
        rank.verdict = ""


def _missing_mark(rank: LiveRank, seen: SeenValue) -> None:
    mark = seen.text("zernel.mark")[:LONGEST_TEXT]
    if seen.value and len(rank.missing_marks) < _MOST_MARKS:
        rank.missing_marks.add(mark)
    else:
        rank.missing_marks.discard(mark)


RANK_READERS: dict[str, Callable[[LiveRank, SeenValue], None]] = {
    "zernel.phase.time": _phase_time,
    "zernel.phase.fraction": _phase_share,
    "zernel.phase.elapsed": _elapsed,
    "zernel.steps": _steps,
    "zernel.step.rate": _value("step_rate"),
    "zernel.step.jitter": _value("jitter"),
    "zernel.verdict": _verdict,
    "zernel.ebpf.missing_marks": _missing_mark,
    "zernel.dataloader.workers": _worker("count"),
    "zernel.dataloader.worker.cpu.time": _worker("cpu_time"),
    "zernel.dataloader.worker.io.wait": _worker("io_wait"),
}
"""By metric."""
