"""Snapshots in the attributes of spans."""

from otel_zernel_libraries.training.ledger import STATES, Snapshot
from otel_zernel_libraries.training.ledger.snapshots import LAYOUT

SNAPSHOT = Snapshot(1, tuple(range(len(STATES))), *range(2, 15))


def test_a_snapshot_is_read_as_it_was_written() -> None:
    assert Snapshot.read_from(SNAPSHOT.to_bytes()) == SNAPSHOT


def test_fields_that_a_later_release_appends_are_ignored() -> None:
    assert Snapshot.read_from(SNAPSHOT.to_bytes() + b"later") == SNAPSHOT


def test_a_piece_of_a_snapshot_is_none() -> None:
    assert Snapshot.read_from(SNAPSHOT.to_bytes()[:-1]) is None
    assert LAYOUT.size == 208
