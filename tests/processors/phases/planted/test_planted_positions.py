"""Checkpoints, compilers and environments have no marks. Python frames show them in a real training loop."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.training.runs import Job, Run, watched
from otel_zernel_libraries.training.ledger import Position
from tests.processors.phases.planted.test_planted_waits import segments_in
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, python_of
from tests.receivers.ebpf.watching import require_ebpf
from tests.waiting import measured

PROGRAM = Path(__file__).with_name("positions.py")
KINDS = frozenset({"backward", "optimizer"})
LEAST = {Position.CHECKPOINT: 0.98, Position.COMPILE: 0.98, Position.ENVIRONMENT: 0.93}
"""An environment step directly before a checkpoint shares its segment: 2 of 60."""


@pytest.mark.timeout(600)
def test_frames_show_the_positions_that_no_mark_shows() -> None:
    require_ebpf()
    job = Job([python_of(OWN), str(PROGRAM), "25"], intervals=KINDS, samples=199)
    shares = measured(lambda: shares_of(watched(job)), are_good)
    assert are_good(shares), shares


def are_good(shares: dict[Position, float]) -> bool:
    return all(shares[position] >= least for position, least in LEAST.items())


def shares_of(run: Run) -> dict[Position, float]:
    """The right part of the time in each position, once each was seen: a function counts from 0.2 s after its first
    sample on."""
    lasted: Counter[Position] = Counter()
    right: Counter[Position] = Counter()
    segments, marks = segments_in(run), run[1][0]["marks"]
    seen = max(next(end for name, _, end in marks if name == position) for position in LEAST)
    for name, start, end in marks:
        if start >= seen:
            lasted[Position(name)] += end - start
            inside = (
                segment
                for segment in segments
                if segment.position == name and segment.start < end and start < segment.end
            )
            right[Position(name)] += sum(min(end, one.end) - max(start, one.start) for one in inside)
    return {position: right[position] / lasted[position] for position in LEAST}
