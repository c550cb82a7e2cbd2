"""Snapshots in the attributes of spans.

The phase of a moment.
"""

import pytest

from otel_zernel_libraries.training.ledger import (
    MOMENTS,
    STATES,
    Activity,
    Phase,
    Position,
    Snapshot,
    joined_snapshots,
    packed_snapshots,
    phase_of,
    read_snapshots,
    unpacked_snapshots,
)
from otel_zernel_libraries.training.ledger.snapshots import LAYOUT
from otel_zernel_libraries.training.words import DETAIL_NAMES

SNAPSHOT = Snapshot._make(
    (
        1,
        tuple(range(len(STATES))),
        *range(2, 15),
        (1, 2, 3, 65_535),
        (1, 2, 3, 2**32 - 1),
        *range(15, 24),
        tuple(range(8)),
        *range(24, 27),
    )
)
LATER = SNAPSHOT._replace(time=2)


def test_snapshots_are_read_as_they_were_written() -> None:
    assert read_snapshots(joined_snapshots(SNAPSHOT.to_bytes(), LATER.to_bytes())) == [SNAPSHOT, LATER]


def test_the_snapshots_of_several_spans_are_read_in_their_order() -> None:
    pieces = [joined_snapshots(first.to_bytes(), LATER.to_bytes()) for first in (SNAPSHOT, LATER)]
    assert read_snapshots(b"".join(pieces)) == [SNAPSHOT, LATER, LATER, LATER]


def test_fields_that_a_later_release_appends_are_ignored() -> None:
    appended = SNAPSHOT.to_bytes() + b"later"
    assert read_snapshots(joined_snapshots(appended, appended)) == [SNAPSHOT, SNAPSHOT]


def test_a_span_with_a_piece_of_a_snapshot_has_none() -> None:
    whole, piece = SNAPSHOT.to_bytes(), SNAPSHOT.to_bytes()[:207]
    assert joined_snapshots(whole, piece) == joined_snapshots(piece, whole) == b""
    assert read_snapshots(b"") == []
    assert LAYOUT.size == 344


def test_a_snapshot_of_an_earlier_version_has_only_the_fields_of_that() -> None:
    nothing = (0, 0, 0, 0)
    sixth = SNAPSHOT._replace(after_backward=0, sampled_before=0, sampled_after=0)
    fifth = sixth._replace(before_backward=(0,) * 8)
    fourth = fifth._replace(giving=0)
    third = fourth._replace(hits=0)
    second = Snapshot._make((*SNAPSHOT[:17], *[0] * 9, (0,) * 8, *[0] * 3))
    first = second._replace(samples=nothing, frame_times=nothing)
    lengths = (first, 208), (second, 232), (third, 280), (fourth, 288), (fifth, 296), (sixth, 328)
    for version, length in lengths:
        data = SNAPSHOT.to_bytes()[:length]
        assert read_snapshots(joined_snapshots(data, data)) == [version, version]


def test_packed_snapshots_are_those_of_each_span_without_their_zeros() -> None:
    nothing = Snapshot._make((0, (0,) * len(STATES), *[0] * 13, (0,) * 4, (0,) * 4, *[0] * 9, (0,) * 8, *[0] * 3))
    spans = [(SNAPSHOT, LATER), (nothing, nothing), (nothing._replace(time=2**63), nothing._replace(hits=1))]
    pieces = [joined_snapshots(begin.to_bytes(), end.to_bytes()) for begin, end in spans]
    packed = packed_snapshots(pieces)
    assert unpacked_snapshots(packed) == b"".join(pieces)
    assert [unpacked_snapshots([one]) for one in packed] == pieces
    assert len(packed[1]) < len(packed[2]) < len(packed[0]) < len(pieces[0])


@pytest.mark.parametrize("position", Position)
def test_a_collective_is_a_collective_wherever_it_is(position: Position) -> None:
    assert phase_of(position, Activity.COLLECTIVE) is Phase.NCCL_COLLECTIVE


@pytest.mark.parametrize("activity", [activity for activity in Activity if activity is not Activity.COLLECTIVE])
def test_only_the_position_decides_the_phase_of_other_moments(activity: Activity) -> None:
    assert phase_of(Position.LOAD, activity) is Phase.DATA_LOADING
    assert phase_of(Position.COMPILE, activity) is Phase.GPU_COMPUTE
    assert phase_of(Position.AVERAGE, activity) is Phase.OPTIMIZER_STEP
    assert phase_of(Position.CHECKPOINT, activity) is Phase.UNKNOWN


@pytest.mark.parametrize("position", Position)
@pytest.mark.parametrize("activity", Activity)
def test_each_moment_has_its_phase_and_a_detail_with_words(position: Position, activity: Activity) -> None:
    moment = MOMENTS[position][activity]
    assert (moment.position, moment.activity) == (position, activity)
    assert moment.phase is phase_of(position, activity)
    assert moment.detail in DETAIL_NAMES
    assert (moment.detail == "host") <= (moment.phase is Phase.UNKNOWN)
