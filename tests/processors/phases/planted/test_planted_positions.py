"""Checkpoints, compilers and environments have no marks. Python frames show them in a real training loop."""

from collections import Counter
from pathlib import Path

from benchmarks.training.runs import Job, watched
from otel_zernel_libraries.training.ledger import Position
from tests.processors.phases.planted.test_planted_waits import segments_in
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, python_of
from tests.receivers.ebpf.watching import require_ebpf

PROGRAM = Path(__file__).with_name("positions.py")
KINDS = frozenset({"backward", "optimizer"})
LEAST = {Position.CHECKPOINT: 0.98, Position.COMPILE: 0.98, Position.ENVIRONMENT: 0.93}
"""An environment step directly before a checkpoint shares its segment: 2 of 60."""


def test_frames_show_the_positions_that_no_mark_shows() -> None:
    """Once each was seen: a function counts from 0.2 s after its first sample on."""
    require_ebpf()
    run = watched(Job([python_of(OWN), str(PROGRAM), "25"], intervals=KINDS, samples=199))
    lasted: Counter[Position] = Counter()
    right: Counter[Position] = Counter()
    segments, marks = segments_in(run), run[1][0]["marks"]
    seen = max(next(end for name, _, end in marks if name == position) for position in LEAST)
    for name, start, end in marks:
        if start >= seen:
            lasted[Position(name)] += end - start
            inside = (one for one in segments if one.position == name and one.start < end and start < one.end)
            right[Position(name)] += sum(min(end, one.end) - max(start, one.start) for one in inside)
    shares = {position: right[position] / lasted[position] for position in LEAST}
    assert all(shares[position] >= least for position, least in LEAST.items()), shares
