"""Snapshots in the attributes of spans."""

from otel_zernel_libraries.training.ledger import STATES, Snapshot
from otel_zernel_libraries.training.ledger.snapshots import LAYOUT

SNAPSHOT = Snapshot._make((1, tuple(range(len(STATES))), *range(2, 15), (1, 2, 3, 65_535), (1, 2, 3, 2**32 - 1)))


def test_a_snapshot_is_read_as_it_was_written() -> None:
    assert Snapshot.read_from(SNAPSHOT.to_bytes()) == SNAPSHOT


def test_fields_that_a_later_release_appends_are_ignored() -> None:
    assert Snapshot.read_from(SNAPSHOT.to_bytes() + b"later") == SNAPSHOT


def test_a_piece_of_a_snapshot_is_none() -> None:
    assert Snapshot.read_from(SNAPSHOT.to_bytes()[:207]) is None
    assert LAYOUT.size == 232


def test_a_snapshot_of_the_first_version_has_no_samples() -> None:
    nothing = (0, 0, 0, 0)
    assert Snapshot.read_from(SNAPSHOT.to_bytes()[:208]) == SNAPSHOT._replace(samples=nothing, frame_times=nothing)
