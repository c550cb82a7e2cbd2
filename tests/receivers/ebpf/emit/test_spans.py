"""Spans of one process share a trace. A program's own names are attributes, and their number is limited."""

import os
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Attributes
from otel_zernel_libraries.training.ledger import STATES, Snapshot, read_snapshots
from otel_zernel_libraries.training.ledger.snapshots import FRAME_POSITIONS, LAYOUT, SAMPLED
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.emit.spans import SpanEncoder
from otel_zernel_receivers.ebpf.kernel import kernel_structs
from otel_zernel_receivers.ebpf.kernel.kernel_structs import EVENT, SNAPSHOT, Code, Interval, RunKind, ThreadState
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from tests.receivers.ebpf.watching import attributes_of

MINUTE = 60_000_000_000


@dataclass
class SomeIdentities:
    """Identities of processes that nobody has to read."""

    gone: set[int] = field(default_factory=set)

    def is_selected(self, process: WatchedProcess) -> bool:
        return True

    def knows(self, process: WatchedProcess) -> bool:
        return process.pid not in self.gone

    def attributes_of(self, process: WatchedProcess) -> Attributes:
        return {"process.pid": process.pid}

    def origin(self, process: WatchedProcess) -> tuple[str, int, str]:
        return "node", process.pid, "2026"


def encoder() -> SpanEncoder:
    return SpanEncoder(SomeIdentities(), offset_ns=0)  # type: ignore[arg-type]  # the methods that it uses


def scopes(*names: str, pid: int = 7, at: int = 0) -> np.ndarray:
    """The events of a program's own scopes."""
    events = np.zeros(len(names), EVENT)
    events["pid"], events["row"], events["interval"] = pid, pid, Interval.USER
    events["begin"], events["end"], events["facts"]["name"] = at, at + 10, [name.encode() for name in names]
    return events


def all_spans(batch: Batch) -> list[Span]:
    return [span for resource in batch.spans.resource_spans for span in resource.scope_spans[0].spans]


def spans_in(batch: Batch) -> list[tuple[str, str, bytes]]:
    """Name, scope's name and trace of each span."""
    return [(span.name, str(attributes_of(span)["zernel_scope_name"]), span.trace_id) for span in all_spans(batch)]


def test_a_scope_of_the_program_has_its_name_in_an_attribute() -> None:
    assert [span[:2] for span in spans_in(encoder().batch(scopes("forward", "loss")))] == [
        ("user", "forward"),
        ("user", "loss"),
    ]


def test_a_program_that_makes_up_names_gets_200_of_them() -> None:
    encoding = encoder()
    counted: Counter[str] = Counter()
    for number in range(10):
        spans = spans_in(encoding.batch(scopes(*(f"step {number * 100 + one}" for one in range(100)))))
        counted.update(name for _, name, _ in spans)
    assert len(counted) == 201
    assert counted["other"] == 800
    assert {name for _, name, _ in spans_in(encoding.batch(scopes("another", pid=8)))} == {"another"}


def test_runs_of_operators_that_are_sampled_are_left_out() -> None:
    events = np.zeros(3, EVENT)
    events["pid"] = events["row"] = 7
    events["interval"] = Interval.OPERATORS, Interval.OPERATORS, Interval.BACKWARD
    events["facts"]["run"]["kind"] = RunKind.OF_MODEL, RunKind.OF_IN_PLACE, 0
    kinds = {
        incomplete: [
            attributes_of(span).get("zernel_operators_kind") for span in all_spans(encoder().batch(events, incomplete))
        ]
        for incomplete in ((), (Group.IN_PLACE,), (Group.OPERATORS,))
    }
    assert kinds == {
        (): ["model", "in_place", None],
        (Group.IN_PLACE,): ["model", None],
        (Group.OPERATORS,): [None],
    }


def test_spans_of_a_process_in_one_minute_share_a_trace() -> None:
    encoding = encoder()
    (of_first,) = {trace for _, _, trace in spans_in(encoding.batch(scopes("a", "b")))}
    (later,) = {trace for _, _, trace in spans_in(encoding.batch(scopes("c", at=MINUTE - 1)))}
    (next_minute,) = {trace for _, _, trace in spans_in(encoding.batch(scopes("a", at=MINUTE)))}
    (other,) = {trace for _, _, trace in spans_in(encoding.batch(scopes("a", pid=8)))}
    assert of_first == later
    assert len({of_first, next_minute, other}) == 3
    assert of_first == spans_in(encoder().batch(scopes("a")))[0][2], "also after a restart"


def collectives(*sequences: int, unique_id: bytes = b"") -> np.ndarray:
    """The events of collectives with these numbers."""
    events = np.zeros(len(sequences), EVENT)
    events["interval"], events["operation"], events["sequence"] = Interval.COLLECTIVE, Operation.ALL_REDUCE, sequences
    communication = events["facts"]["communication"]
    communication["rank"], communication["size"] = 2, 4
    communication["id"] = int.from_bytes(unique_id.ljust(8, b"\0"), "little")
    return events


def attributes_in(batch: Batch) -> list[dict[str, object]]:
    return [attributes_of(span) for resource in batch.spans.resource_spans for span in resource.scope_spans[0].spans]


def test_a_collective_has_its_number_and_the_name_of_its_communicator() -> None:
    unique_id = b"\x01\x02\x03\x04\x05\x06\x07\x00"
    one, other = attributes_in(encoder().batch(collectives(1, 4_000_000_000, unique_id=unique_id)))
    assert one["zernel_collective_sequence"] == 1
    assert other["zernel_collective_sequence"] == 4_000_000_000
    assert one["zernel_collective_communicator"] == other["zernel_collective_communicator"]
    assert len(str(one["zernel_collective_communicator"])) == 16
    assert unique_id.hex() not in str(one), "the id itself admits processes to the communicator"


def test_communicators_with_different_ids_have_different_names() -> None:
    names = {
        str(attributes_in(encoder().batch(collectives(1, unique_id=one)))[0]["zernel_collective_communicator"])
        for one in (b"\x01", b"\x01\x00\x01", b"\x02")
    }
    assert len(names) == 3


def test_a_communicator_whose_id_is_the_same_in_every_job_has_no_name() -> None:
    fixed = bytes.fromhex("8002800280028002")
    (attributes,) = attributes_in(encoder().batch(collectives(1, unique_id=fixed)))
    assert "zernel_collective_communicator" not in attributes


def test_a_collective_of_a_communicator_whose_creation_was_not_seen_has_no_number() -> None:
    (attributes,) = attributes_in(encoder().batch(collectives(0)))
    assert not {"zernel_collective_sequence", "zernel_collective_communicator"} & set(attributes)


def test_a_span_has_the_bytes_of_its_snapshots() -> None:
    events = scopes("forward", "loss")
    begin, end = (np.frombuffer(os.urandom(SNAPSHOT.itemsize), SNAPSHOT)[0] for _ in range(2))
    events["snapshot_begin"][0], events["snapshot_end"][0] = begin, end
    first, second = attributes_in(encoder().batch(events))
    assert (first["zernel_snapshot_begin"], first["zernel_snapshot_end"]) == (begin.tobytes(), end.tobytes())
    assert not [name for name in second if "snapshot" in name], "its event has none"


def test_a_snapshot_is_read_as_the_kernel_writes_it() -> None:
    assert LAYOUT.size == SNAPSHOT.itemsize
    assert Snapshot._fields == SNAPSHOT.names
    assert len(STATES) == kernel_structs.STATES
    assert len(SAMPLED) == kernel_structs.CODES
    assert [activity and activity.upper() for activity in SAMPLED][1:] == [code.name for code in Code][1 : len(SAMPLED)]
    assert len(FRAME_POSITIONS) == kernel_structs.FRAME_POSITIONS
    assert [state and state.upper() for state in STATES][1:] == [state.name for state in ThreadState][1 : len(STATES)]
    kernel = np.frombuffer(os.urandom(SNAPSHOT.itemsize), SNAPSHOT)[0]
    (read,) = read_snapshots(kernel.tobytes())
    assert read.to_bytes() == kernel.tobytes()
    for name in Snapshot._fields:
        value = getattr(read, name)
        assert (list(value) if isinstance(value, tuple) else value) == kernel[name].tolist(), name
